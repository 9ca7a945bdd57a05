//! Tables of the screen: without borders, the widest cell of each column decides.

use comfy_table::{ContentArrangement, Row, Table, presets};

pub(super) fn table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    table
}

/// Its lines, without blanks at their ends.
pub(super) fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>().join("\n")
}
