<#
.SYNOPSIS
    Removes Calico with the parameters of Calico's own uninstall-calico.ps1, by calicoctl-win.
.DESCRIPTION
    Shows the command that it runs. The parameters of the original only chose what of its own to leave, for example the
    service CalicoUpgrade; here there is no such service, and they change nothing.
#>
param(
    [bool] $ExceptUpgradeService = $false,
    [bool] $CleanupForHostProcessInstall = $false
)

# The program beside this script or in the folder above, else the one in the PATH.
$program = 'calicoctl-win.exe'
foreach ($folder in (Split-Path -Path $PSScriptRoot -Parent), $PSScriptRoot) {
    $there = Join-Path -Path $folder -ChildPath 'calicoctl-win.exe'
    if (Test-Path -LiteralPath $there) { $program = $there }
}

foreach ($name in $PSBoundParameters.Keys) {
    Write-Output -InputObject "$name is not needed: calicoctl-win has no upgrade service, and removes all that is Calico's"
}
$options = @('uninstall', '--yes')

Write-Output -InputObject "calicoctl-win $options"
& $program $options
exit $LASTEXITCODE
