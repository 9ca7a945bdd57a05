<#
.SYNOPSIS
    Installs Calico with the config.ps1 beside it, as Calico's own install-calico.ps1 does, by calicoctl-win.
.DESCRIPTION
    Shows the commands that it runs. config.ps1 is read and not run; its settings are written to calicoctl-win.yaml beside
    it, once, and that file counts from then on. As with the original, the services are started by start-calico.ps1.
#>
param()

# The program beside this script or in the folder above, else the one in the PATH.
$program = 'calicoctl-win.exe'
foreach ($folder in (Split-Path -Path $PSScriptRoot -Parent), $PSScriptRoot) {
    $there = Join-Path -Path $folder -ChildPath 'calicoctl-win.exe'
    if (Test-Path -LiteralPath $there) { $program = $there }
}

$config = Join-Path -Path $PSScriptRoot -ChildPath 'calicoctl-win.yaml'
if (-not (Test-Path -LiteralPath $config)) {
    $import = @('config', 'import', (Join-Path -Path $PSScriptRoot -ChildPath 'config.ps1'), "--out=$config")
    Write-Output -InputObject "calicoctl-win $import"
    & $program $import
    if ($LASTEXITCODE -ne 0) { exit $LASTEXITCODE }
}
$options = @('install', '--yes', '--no-start', "--config=$config")

Write-Output -InputObject "calicoctl-win $options"
& $program $options
exit $LASTEXITCODE
