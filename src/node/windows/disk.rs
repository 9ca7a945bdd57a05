//! Files, folders and release trees, with the rights they are to have.

use anyhow::{Result, bail};

use crate::plan::item::{Access, State, Tree};
use crate::values::{Sha256, WinPath};

pub fn get_dir(_path: &WinPath) -> Result<Option<State>> {
    bail!("disk: to be written")
}

pub fn get_tree(_path: &WinPath) -> Result<Option<State>> {
    bail!("disk: to be written")
}

pub fn get_file(_path: &WinPath) -> Result<Option<State>> {
    bail!("disk: to be written")
}

pub fn put_dir(_path: &WinPath, _access: Option<Access>) -> Result<()> {
    bail!("disk: to be written")
}

pub fn put_tree(_path: &WinPath, _tree: Option<&Tree>) -> Result<()> {
    bail!("disk: to be written")
}

pub fn put_file(_path: &WinPath, _wanted: Option<(&Sha256, Access)>) -> Result<()> {
    bail!("disk: to be written")
}

pub fn save(_path: &WinPath, _bytes: &[u8], _access: Access) -> Result<()> {
    bail!("disk: to be written")
}

pub fn append(_path: &WinPath, _line: &str) -> Result<()> {
    bail!("disk: to be written")
}
