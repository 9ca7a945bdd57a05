@{
    RootModule = 'CalicoctlWin.psm1'
    ModuleVersion = '0.1.0'
    GUID = '6b0f3a55-2c1e-4f0a-9a57-6d4b8f1f7c2e'
    Author = 'The developers of calicoctl-win'
    CompanyName = 'The developers of calicoctl-win'
    Copyright = 'Apache License 2.0'
    Description = 'Installs, changes, repairs and removes Calico on a Windows node, by calicoctl-win.'
    PowerShellVersion = '5.1'
    CompatiblePSEditions = @('Desktop', 'Core')
    FileList = @('CalicoctlWin.psd1', 'CalicoctlWin.psm1', 'Commands.ps1', 'CalicoctlWin.Format.ps1xml')
    FormatsToProcess = @('CalicoctlWin.Format.ps1xml')
    FunctionsToExport = @(
        'Test-CalicoNode',
        'Get-CalicoPlan',
        'Set-CalicoNode',
        'Install-CalicoNode',
        'Update-CalicoNode',
        'Update-CalicoRelease',
        'Switch-CalicoFlannel',
        'Confirm-CalicoChange',
        'Restore-CalicoNode',
        'Uninstall-CalicoNode',
        'Repair-CalicoNode',
        'Resume-CalicoRun',
        'Get-CalicoNode',
        'Test-CalicoConnectivity',
        'Get-CalicoHistory',
        'Get-CalicoLog',
        'Get-CalicoGeneration',
        'Get-CalicoReceipt',
        'Get-CalicoService',
        'Start-CalicoService',
        'Stop-CalicoService',
        'Restart-CalicoService',
        'Install-CalicoKubernetes',
        'Get-CalicoKubernetes',
        'Uninstall-CalicoKubernetes',
        'Get-CalicoNetwork',
        'Get-CalicoNetworkDetail',
        'Reset-CalicoNetwork',
        'Get-CalicoConfig',
        'Compare-CalicoConfig',
        'Test-CalicoConfig',
        'Import-CalicoConfig',
        'Get-CalicoCredential',
        'Save-CalicoCredential',
        'Update-CalicoCredential',
        'Get-CalicoRelease',
        'Save-CalicoRelease',
        'Export-CalicoBundle',
        'Test-CalicoRelease',
        'Expand-CalicoRelease',
        'Test-CalicoCluster',
        'Get-CalicoClusterPatch',
        'Get-CalicoFleetPlan',
        'Update-CalicoFleet',
        'Get-CalicoFleet',
        'Suspend-CalicoFleet',
        'Resume-CalicoFleet',
        'Restore-CalicoFleet',
        'Initialize-CalicoCluster',
        'Test-CalicoPolicy',
        'Test-CalicoWindows',
        'Export-CalicoDiagnosis',
        'Get-CalicoExplanation',
        'Get-CalicoVersion'
    )
    CmdletsToExport = @()
    VariablesToExport = @()
    AliasesToExport = @()
    PrivateData = @{
        PSData = @{
            Tags = @('Calico', 'Kubernetes', 'Windows', 'CNI', 'HNS')
        }
    }
}
