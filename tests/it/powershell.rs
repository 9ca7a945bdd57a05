//! Checks scripts against PowerShell's grammar.

/// Returns the syntax tree of an invalid PowerShell script; none for a valid one.
pub fn errors(script: &str) -> Option<String> {
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_pwsh::LANGUAGE.into()).unwrap();
    let tree = parser.parse(script, None).unwrap();
    tree.root_node().has_error().then(|| tree.root_node().to_sexp())
}

#[test]
fn invalid_powershell_is_detected() {
    assert!(errors("if ($true { Get-Date }").is_some());
    assert_eq!(errors("if ($true) { Get-Date }"), None);
}
