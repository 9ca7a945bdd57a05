//! Registry values below HKEY_LOCAL_MACHINE, in the 64-bit view.

use anyhow::{Result, bail};

use crate::plan::item::RegValue;

pub fn get(_key: &str, _name: &str) -> Result<Option<RegValue>> {
    bail!("registry: to be written")
}

pub fn put(_key: &str, _name: &str, _value: Option<&RegValue>) -> Result<()> {
    bail!("registry: to be written")
}
