# Checks the module and the scripts with PowerShell's own tools. Needs the built program; installs PSScriptAnalyzer and
# Pester for this user.
$ErrorActionPreference = 'Stop'
Set-PSRepository -Name PSGallery -InstallationPolicy Trusted
Install-Module -Name PSScriptAnalyzer -Scope CurrentUser -Force
Install-Module -Name Pester -MinimumVersion 5.5 -Scope CurrentUser -Force -SkipPublisherCheck
Test-ModuleManifest -Path (Join-Path -Path $PSScriptRoot -ChildPath 'CalicoctlWin\CalicoctlWin.psd1')
$target = Join-Path -Path $PSScriptRoot -ChildPath '..\..\target\debug'
$env:PATH = "$((Resolve-Path -LiteralPath $target).Path);$env:PATH"
Invoke-Pester -Path (Join-Path -Path $PSScriptRoot -ChildPath 'tests') -CI
$settings = @{
    Severity = @('Error', 'Warning')
    # It looks for the question in the file of each function alone; CalicoctlWin.psm1 asks for all of them.
    ExcludeRules = @('PSShouldProcess')
    Rules = @{ PSUseSingularNouns = @{ Enable = $true; NounAllowList = @('CalicoKubernetes', 'CalicoWindows', 'Kubernetes', 'Windows') } }
}
$found = Invoke-ScriptAnalyzer -Path $PSScriptRoot -Recurse -Settings $settings
$found | Format-Table -AutoSize
if ($found) { throw "PSScriptAnalyzer has $(@($found).Count) findings" }
