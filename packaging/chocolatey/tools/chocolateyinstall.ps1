# Downloads the MSI, verifies it and installs it. Chocolatey removes an MSI by itself.
$ErrorActionPreference = 'Stop'
$arguments = @{
    PackageName = $env:ChocolateyPackageName
    SoftwareName = 'calicoctl-win'
    FileType = 'msi'
    Url64bit = '@URL@/calicoctl-win-@VERSION@-x86_64-windows.msi'
    Checksum64 = '@MSI_SHA256@'
    ChecksumType64 = 'sha256'
    SilentArgs = '/qn /norestart'
    ValidExitCodes = @(0, 1641, 3010)
}
Install-ChocolateyPackage @arguments
