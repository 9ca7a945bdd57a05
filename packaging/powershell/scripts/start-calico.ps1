<#
.SYNOPSIS
    Starts Calico's services, as Calico's own start-calico.ps1 does, by calicoctl-win.
.DESCRIPTION
    Shows the command that it runs.
#>
param()

# The program beside this script or in the folder above, else the one in the PATH.
$program = 'calicoctl-win.exe'
foreach ($folder in (Split-Path -Path $PSScriptRoot -Parent), $PSScriptRoot) {
    $there = Join-Path -Path $folder -ChildPath 'calicoctl-win.exe'
    if (Test-Path -LiteralPath $there) { $program = $there }
}

$options = @('service', 'start', '--yes')

Write-Output -InputObject "calicoctl-win $options"
& $program $options
exit $LASTEXITCODE
