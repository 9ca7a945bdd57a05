<#
.SYNOPSIS
    Stops Calico's services with the parameter of Calico's own stop-calico.ps1, by calicoctl-win.
.DESCRIPTION
    Shows the command that it runs.
#>
param(
    [bool] $ExceptUpgradeService = $false
)

# The program beside this script or in the folder above, else the one in the PATH.
$program = 'calicoctl-win.exe'
foreach ($folder in (Split-Path -Path $PSScriptRoot -Parent), $PSScriptRoot) {
    $there = Join-Path -Path $folder -ChildPath 'calicoctl-win.exe'
    if (Test-Path -LiteralPath $there) { $program = $there }
}

if ($ExceptUpgradeService) {
    Write-Output -InputObject 'ExceptUpgradeService is not needed: calicoctl-win has no upgrade service'
}
$options = @('service', 'stop', '--yes')

Write-Output -InputObject "calicoctl-win $options"
& $program $options
exit $LASTEXITCODE
