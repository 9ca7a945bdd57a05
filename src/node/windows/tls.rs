//! The registry's TLS 1.2 settings for programs that use Windows's own TLS.

use anyhow::Result;

use super::registry::number;
use crate::facts::Tls;

const CLIENT: &str = r"SYSTEM\CurrentControlSet\Control\SecurityProviders\SCHANNEL\Protocols\TLS 1.2\Client";
const DOTNET: &str = r"Microsoft\.NETFramework\v4.0.30319";
const WIN_HTTP: &str = r"Microsoft\Windows\CurrentVersion\Internet Settings\WinHttp";

/// Reads them. The view for 32-bit programs is the key `Wow6432Node` of the one for 64-bit ones.
///
/// # Errors
/// When the registry cannot be read.
pub fn facts() -> Result<Tls> {
    let flag = |key: &str, name: &str| Ok::<_, anyhow::Error>(number(key, name)?.map(|number| number != 0));
    let wide = |below: &str| format!(r"SOFTWARE\{below}");
    let narrow = |below: &str| format!(r"SOFTWARE\Wow6432Node\{below}");
    Ok(Tls {
        client_enabled: flag(CLIENT, "Enabled")?,
        client_disabled_by_default: flag(CLIENT, "DisabledByDefault")?,
        dotnet_strong_crypto: flag(&wide(DOTNET), "SchUseStrongCrypto")?,
        dotnet_strong_crypto_32: flag(&narrow(DOTNET), "SchUseStrongCrypto")?,
        dotnet_system_versions: flag(&wide(DOTNET), "SystemDefaultTlsVersions")?,
        dotnet_system_versions_32: flag(&narrow(DOTNET), "SystemDefaultTlsVersions")?,
        win_http: number(&wide(WIN_HTTP), "DefaultSecureProtocols")?,
        win_http_32: number(&narrow(WIN_HTTP), "DefaultSecureProtocols")?,
    })
}
