//! COM on a thread, and the error of a failed call.

use windows::Win32::System::Com::{COINIT_MULTITHREADED, CoInitializeEx, CoUninitialize};
use windows::core::HRESULT;

/// COM, initialized on this thread until dropped.
pub struct Com(HRESULT);

impl Com {
    pub fn begin() -> Self {
        // SAFETY: it has no requirements. A thread on which COM is ready in the other way
        // (RPC_E_CHANGED_MODE) does as well, and is left so.
        Self(unsafe { CoInitializeEx(None, COINIT_MULTITHREADED) })
    }
}

impl Drop for Com {
    fn drop(&mut self) {
        if self.0.is_ok() {
            // SAFETY: it pairs with the call that succeeded on this thread: the value cannot be sent.
            unsafe { CoUninitialize() };
        }
    }
}

/// The Win32 error in a COM error, if there is one.
pub fn code(error: &windows::core::Error) -> u32 {
    let code = error.code().0.cast_unsigned();
    if code >> 16 == 0x8007 { code & 0xFFFF } else { code }
}
