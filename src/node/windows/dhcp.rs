//! The DHCP client of an adapter, through WMI's class MSFT_NetIPInterface as `Set-NetIPInterface -Dhcp` switches it: at
//! once, and for every boot; its property Dhcp is a uint8 (microsoft/wmi, MSFT_NetIPInterface.go). The IP helper only says
//! whether it is on.

use anyhow::Result;
use windows::Win32::System::Com::{
    CLSCTX_INPROC_SERVER, CoCreateInstance, CoSetProxyBlanket, EOAC_NONE, RPC_C_AUTHN_LEVEL_CALL,
    RPC_C_IMP_LEVEL_IMPERSONATE,
};
use windows::Win32::System::Rpc::{RPC_C_AUTHN_WINNT, RPC_C_AUTHZ_NONE};
use windows::Win32::System::Variant::VARIANT;
use windows::Win32::System::Wmi::{
    IWbemClassObject, IWbemLocator, IWbemServices, WBEM_E_ACCESS_DENIED, WBEM_FLAG_CONNECT_USE_MAX_WAIT,
    WBEM_FLAG_FORWARD_ONLY, WBEM_FLAG_RETURN_IMMEDIATELY, WBEM_FLAG_UPDATE_ONLY, WBEM_GENERIC_FLAG_TYPE, WbemLocator,
};
use windows::core::{BSTR, PCWSTR, w};

use super::com::{Com, code};
use crate::node::win32::{self, refused};

/// How long WMI may take to answer, in milliseconds.
const LIMIT: i32 = 30_000;

/// Switches the DHCP client of an interface on or off, for IPv4.
///
/// # Errors
/// What WMI says; Windows error 1168 if there is no such interface.
pub fn set(interface: u32, on: bool) -> Result<()> {
    let what = || format!("switch DHCP {} on interface {interface}", if on { "on" } else { "off" });
    let _com = Com::begin();
    match put(interface, on) {
        Ok(true) => Ok(()),
        Ok(false) => Err(refused(win32::NOT_FOUND, what()).into()),
        Err(error) if error.code().0 == WBEM_E_ACCESS_DENIED.0 || code(&error) == win32::ACCESS_DENIED => {
            Err(win32::denied(what()).into())
        }
        Err(error) => Err(refused(code(&error), what()).into()),
    }
}

/// Returns whether there is such an interface.
fn put(interface: u32, on: bool) -> windows::core::Result<bool> {
    let (none, query) = (
        BSTR::new(),
        format!("SELECT * FROM MSFT_NetIPInterface WHERE InterfaceIndex = {interface} AND AddressFamily = 2"),
    );
    // SAFETY: COM is ready on this thread; the class has this interface; every text and value outlives its call, and the
    // array has room for one object.
    unsafe {
        let locator: IWbemLocator = CoCreateInstance(&WbemLocator, None, CLSCTX_INPROC_SERVER)?;
        let space = BSTR::from(r"ROOT\StandardCimv2");
        let wait = WBEM_FLAG_CONNECT_USE_MAX_WAIT.0;
        let services: IWbemServices = locator.ConnectServer(&space, &none, &none, &none, wait, &none, None)?;
        // WMI acts with the caller's rights only if the caller lets it.
        CoSetProxyBlanket(
            &services,
            RPC_C_AUTHN_WINNT,
            RPC_C_AUTHZ_NONE,
            PCWSTR::null(),
            RPC_C_AUTHN_LEVEL_CALL,
            RPC_C_IMP_LEVEL_IMPERSONATE,
            None,
            EOAC_NONE,
        )?;
        let flags = WBEM_FLAG_FORWARD_ONLY | WBEM_FLAG_RETURN_IMMEDIATELY;
        let found = services.ExecQuery(&BSTR::from("WQL"), &BSTR::from(query), flags, None)?;
        let (mut objects, mut count) = ([None::<IWbemClassObject>], 0);
        found.Next(LIMIT, &mut objects, &raw mut count).ok()?;
        let [Some(object)] = objects else { return Ok(false) };
        let dhcp = VARIANT::from(u8::from(on));
        object.Put(w!("Dhcp"), 0, &raw const dhcp, 0)?;
        services.PutInstance(&object, WBEM_GENERIC_FLAG_TYPE(WBEM_FLAG_UPDATE_ONLY.0), None, None)?;
    }
    Ok(true)
}
