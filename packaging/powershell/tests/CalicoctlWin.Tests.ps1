# Pester tests of the module, on a sandbox node: Invoke-Pester packaging/powershell/tests
BeforeAll {
    Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath '..\CalicoctlWin\CalicoctlWin.psd1') -Force
    $script:node = Join-Path -Path $TestDrive -ChildPath 'a node'
}

Describe 'CalicoctlWin' {
    It 'shows what an install would do, and changes nothing' {
        $would = Install-CalicoNode -Sandbox $node -WhatIf
        $would.Status | Should -Be 'changes_pending'
        $would.Plan.Changes.Count | Should -BeGreaterThan 5
        (Get-CalicoNode -Sandbox $node).Overall | Should -Be 'NotInstalled'
    }

    It 'installs without a question, and then has nothing to do' {
        $result = Install-CalicoNode -Sandbox $node -Confirm:$false
        $result.Success | Should -BeTrue
        $result.Changed | Should -BeTrue
        (Set-CalicoNode -Sandbox $node -Confirm:$false).Changed | Should -BeFalse
    }

    It 'returns objects with types' {
        $status = Get-CalicoNode -Sandbox $node
        $status.PSObject.TypeNames[0] | Should -Be 'CalicoctlWin.Status'
        $status.Services[0].Since | Should -BeOfType ([datetime])
        (Get-CalicoService -Sandbox $node).Name | Should -Contain 'CalicoFelix'
        (Get-CalicoGeneration -Sandbox $node).CanGoBack | Should -BeOfType ([bool])
        Test-CalicoNode -Sandbox $node -All | ForEach-Object { $_.Status | Should -BeIn 'ok', 'warn', 'skip' }
    }

    It 'passes values with blanks, quotation marks and backslashes' {
        $paths = Get-CalicoConfig -Sandbox $node -Set 'services.logDir=C:\log files\', 'services.extraEnv.A=say "hi"'
        ($paths | Where-Object -Property Path -EQ 'spec.services.logDir').Value | Should -Be 'C:\log files\'
    }

    It 'makes an error of a failure' {
        $problem = $null
        Install-CalicoNode -Sandbox $node -Set 'calicoNetwork.vxlan.vxlanVNI=1' -Confirm:$false -ErrorVariable problem -ErrorAction SilentlyContinue
        $problem[0].FullyQualifiedErrorId | Should -BeLike 'ConfigInvalid*'
        $problem[0].CategoryInfo.Category | Should -Be 'InvalidArgument'
        $problem[0].ErrorDetails.RecommendedAction | Should -Not -BeNullOrEmpty
        $problem[0].TargetObject.ExitCode | Should -Be 4
    }
}

Describe 'The scripts with the names of Calico''s own' {
    It 'install, stop, start and remove Calico' {
        $env:CALICO_WIN_SANDBOX = Join-Path -Path $TestDrive -ChildPath 'another'
        $folder = Join-Path -Path $PSScriptRoot -ChildPath '..\scripts'
        $calls = @(
            , @('install-calico-windows.ps1', '-CalicoBackend', 'vxlan', '-ServiceCidr', '10.96.0.0/12')
            , @('stop-calico.ps1')
            , @('start-calico.ps1')
            , @('uninstall-calico.ps1')
        )
        foreach ($call in $calls) {
            $shell = (Get-Process -Id $PID).Path
            $words = @($call | Select-Object -Skip 1)
            & $shell -NoProfile -ExecutionPolicy Bypass -File (Join-Path -Path $folder -ChildPath $call[0]) @words
            $LASTEXITCODE | Should -Be 0
        }
        $env:CALICO_WIN_SANDBOX = $null
    }
}
