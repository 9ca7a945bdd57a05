//! Scripts for PowerShell, held against its grammar.

/// The syntax tree of a script that is not PowerShell; none for one that is.
pub fn errors(script: &str) -> Option<String> {
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_pwsh::LANGUAGE.into()).unwrap();
    let tree = parser.parse(script, None).unwrap();
    tree.root_node().has_error().then(|| tree.root_node().to_sexp())
}

#[test]
fn what_is_no_powershell_is_seen() {
    assert!(errors("if ($true { Get-Date }").is_some());
    assert_eq!(errors("if ($true) { Get-Date }"), None);
}
