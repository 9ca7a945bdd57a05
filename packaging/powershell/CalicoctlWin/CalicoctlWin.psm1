# Runs calicoctl-win and makes objects of its documents. Commands.ps1 has a function for each of its commands.
Set-StrictMode -Version 2.0

. (Join-Path -Path $PSScriptRoot -ChildPath 'Commands.ps1')

# The program beside this module or in the folder above, else the one in the PATH.
function Get-Program {
    foreach ($folder in $PSScriptRoot, (Split-Path -Path $PSScriptRoot -Parent)) {
        $there = Join-Path -Path $folder -ChildPath 'calicoctl-win.exe'
        if (Test-Path -LiteralPath $there) { return $there }
    }
    $found = Get-Command -Name 'calicoctl-win' -CommandType Application -ErrorAction SilentlyContinue
    if (-not $found) {
        throw "calicoctl-win.exe is neither beside the module CalicoctlWin nor in the PATH"
    }
    (@($found)[0]).Path
}

# The options of a command line, from the parameters that were given. $Options has the option of each parameter; an
# empty one is for an argument without an option, and one that ends with = takes true or false.
function ConvertTo-ArgumentList {
    param(
        [System.Collections.IDictionary] $Bound,
        [System.Collections.IDictionary] $Options
    )
    $plain = @()
    foreach ($name in $Options.Keys) {
        if (-not $Bound.ContainsKey($name)) { continue }
        $option = $Options[$name]
        $given = $Bound[$name]
        if ($given -is [System.Management.Automation.SwitchParameter]) {
            if ($option.EndsWith('=')) { "$option$("$given".ToLowerInvariant())" } elseif ($given) { $option }
        } elseif ($option) {
            foreach ($one in $given) { "$option=$one" }
        } else {
            $plain += $given
        }
    }
    $plain
}

# One text, which Windows splits into these arguments again.
function ConvertTo-CommandLine {
    param([string[]] $ArgumentList)
    $quoted = foreach ($argument in $ArgumentList) {
        # Backslashes are doubled before a quotation mark, and nowhere else.
        '"' + ($argument -replace '(\\*)"', '$1$1\"' -replace '(\\+)$', '$1$1') + '"'
    }
    $quoted -join ' '
}

# rolled_back becomes RolledBack; a name that is not ours stays.
function ConvertTo-PropertyName {
    param([string] $Name)
    if ($Name -cnotmatch '^[a-z]+(_[a-z0-9]+)*$') { return $Name }
    $words = foreach ($word in $Name.Split('_')) { $word.Substring(0, 1).ToUpperInvariant() + $word.Substring(1) }
    $words -join ''
}

# Objects with PowerShell's names and with times, which PowerShell 5.1 leaves as text.
function ConvertTo-Typed {
    param($Value)
    if ($Value -is [System.Management.Automation.PSCustomObject]) {
        $properties = [ordered]@{}
        foreach ($property in $Value.PSObject.Properties) {
            $properties[(ConvertTo-PropertyName -Name $property.Name)] = ConvertTo-Typed -Value $property.Value
        }
        return [pscustomobject] $properties
    }
    if ($Value -is [array]) {
        $items = New-Object -TypeName System.Collections.ArrayList
        foreach ($item in $Value) { [void] $items.Add((ConvertTo-Typed -Value $item)) }
        # The comma keeps an array of one item an array.
        return , $items.ToArray()
    }
    if ($Value -is [string] -and $Value -match '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$') {
        $culture = [System.Globalization.CultureInfo]::InvariantCulture
        return [datetime]::Parse($Value, $culture, [System.Globalization.DateTimeStyles]::AdjustToUniversal)
    }
    # As an argument of `return`, an empty text or null stays one value.
    return $Value
}

# Shows an event that is neither a document nor the result.
function Write-Event {
    param($Said, [string] $Activity)
    switch ($Said.type) {
        'phase_start' {
            $percent = -1
            if ($Said.phase.PSObject.Properties['total'] -and $Said.phase.total -gt 0) {
                $percent = [math]::Min(100, 100 * ($Said.phase.index - 1) / $Said.phase.total)
            }
            Write-Progress -Activity $Activity -Status $Said.message -PercentComplete $percent
        }
        'progress' {
            $percent = -1
            if ($Said.total -gt 0) { $percent = [math]::Min(100, 100 * $Said.current / $Said.total) }
            Write-Progress -Activity $Activity -Status $Said.message -CurrentOperation $Said.part -PercentComplete $percent
        }
        { $_ -in 'waiting', 'drain_progress', 'pod_gone' } {
            Write-Progress -Activity $Activity -Status $Said.message
        }
        { $_ -in 'connectivity_notice', 'confirm_deadline', 'pod_blocked', 'rollback_start' } {
            Write-Warning -Message $Said.message
        }
        'diagnostic' { Write-Warning -Message "$($Said.id): $($Said.message)" }
        default {
            if ($Said.level -eq 'warn') { Write-Warning -Message $Said.message } else { Write-Verbose -Message $Said.message }
        }
    }
}

# Runs the program, shows its events and returns its documents. $Result receives its last line.
function Invoke-Program {
    param(
        [System.Management.Automation.PSCmdlet] $Cmdlet,
        [string[]] $ArgumentList,
        [ref] $Result
    )
    $activity = "calicoctl-win $($ArgumentList[0])"
    $start = New-Object -TypeName System.Diagnostics.ProcessStartInfo
    $start.FileName = Get-Program
    $start.Arguments = ConvertTo-CommandLine -ArgumentList ($ArgumentList + @('--no-input', '--output=ndjson'))
    # A process has a folder of its own, which Set-Location does not change.
    $start.WorkingDirectory = $Cmdlet.SessionState.Path.CurrentFileSystemLocation.ProviderPath
    $start.UseShellExecute = $false
    $start.RedirectStandardOutput = $true
    $start.StandardOutputEncoding = New-Object -TypeName System.Text.UTF8Encoding -ArgumentList $false
    $process = [System.Diagnostics.Process]::Start($start)
    try {
        while ($null -ne ($line = $process.StandardOutput.ReadLine())) {
            $said = ConvertFrom-Json -InputObject $line
            if ($said.type -eq 'document') {
                ConvertTo-Typed -Value $said.document
            } elseif ($said.type -eq 'result') {
                $Result.Value = ConvertTo-Typed -Value $said
            } else {
                Write-Event -Said $said -Activity $activity
            }
        }
    } finally {
        # Ctrl-C reaches the program too, which first undoes what it must.
        $process.WaitForExit()
        $process.Dispose()
        Write-Progress -Activity $activity -Completed
    }
}

function Add-TypeName {
    param($To, [string] $Name)
    $To.PSObject.TypeNames.Insert(0, "CalicoctlWin.$Name")
    $To
}

# The error of a run, if it failed.
function Write-Failure {
    param([System.Management.Automation.PSCmdlet] $Cmdlet, $Result)
    if ($null -eq $Result) {
        throw 'calicoctl-win ended without a result'
    }
    if ($null -eq $Result.Error) { return }
    $category = switch ($Result.ExitName) {
        'INVALID_CONFIG' { 'InvalidArgument' }
        'USAGE' { 'InvalidArgument' }
        'NOT_ELEVATED' { 'PermissionDenied' }
        'CLUSTER_UNREACHABLE' { 'ConnectionError' }
        'BUSY' { 'ResourceBusy' }
        'NOT_INSTALLED' { 'ObjectNotFound' }
        default { 'OperationStopped' }
    }
    $exception = New-Object -TypeName System.InvalidOperationException -ArgumentList ($Result.Error.Chain -join ': ')
    $record = New-Object -TypeName System.Management.Automation.ErrorRecord -ArgumentList $exception, $Result.Error.Id, $category, $Result
    $lines = @($Result.Error.Chain -join ': ')
    foreach ($line in $Result.Error.State, $Result.Error.Hint) { if ($line) { $lines += $line } }
    $record.ErrorDetails = New-Object -TypeName System.Management.Automation.ErrorDetails -ArgumentList ($lines -join "`n")
    $record.ErrorDetails.RecommendedAction = $Result.Error.Hint
    $Cmdlet.WriteError($record)
}

# Runs a command that changes nothing. $Expand: the list of its document whose items are returned instead of it.
function Read-Document {
    param(
        [System.Management.Automation.PSCmdlet] $Cmdlet,
        [string[]] $Command,
        [System.Collections.IDictionary] $Bound,
        [System.Collections.IDictionary] $Options,
        [string] $Type,
        [string] $Expand
    )
    $arguments = $Command + @(ConvertTo-ArgumentList -Bound $Bound -Options $Options)
    $result = $null
    Invoke-Program -Cmdlet $Cmdlet -ArgumentList $arguments -Result ([ref] $result) | ForEach-Object -Process {
        if ($Expand) {
            foreach ($item in $_.$Expand) { Add-TypeName -To $item -Name $Type }
        } else {
            Add-TypeName -To $_ -Name $Type
        }
    }
    Write-Failure -Cmdlet $Cmdlet -Result $result
}

# Runs a command that changes something, and returns its result. Before it asks, and with -WhatIf, it looks what the
# command would do.
function Invoke-Change {
    param(
        [System.Management.Automation.PSCmdlet] $Cmdlet,
        [string[]] $Command,
        [System.Collections.IDictionary] $Bound,
        [System.Collections.IDictionary] $Options,
        [bool] $IsTrial,
        [bool] $Asks
    )
    $arguments = $Command + @(ConvertTo-ArgumentList -Bound $Bound -Options $Options)
    $what = "calicoctl-win $($arguments[0])"
    $would = $null
    # A dry run changes nothing, so nothing is asked.
    if ($Bound.ContainsKey('DryRun')) {
        Invoke-Program -Cmdlet $Cmdlet -ArgumentList $arguments -Result ([ref] $would) | Out-Null
        if ($null -ne $would) { Add-TypeName -To $would -Name 'RunResult' }
        Write-Failure -Cmdlet $Cmdlet -Result $would
        return
    }
    if ($IsTrial -or $Asks) {
        Invoke-Program -Cmdlet $Cmdlet -ArgumentList ($arguments + @('--dry-run')) -Result ([ref] $would) | Out-Null
        Write-Failure -Cmdlet $Cmdlet -Result $would
        if (-not $would.Success) { return }
        $what = "$what ($($would.Msg))"
    }
    if (-not $Cmdlet.ShouldProcess($what, "Run $what?", 'calicoctl-win')) {
        if ($IsTrial) { Add-TypeName -To $would -Name 'RunResult' }
        return
    }
    $result = $null
    Invoke-Program -Cmdlet $Cmdlet -ArgumentList ($arguments + @('--yes')) -Result ([ref] $result) | Out-Null
    if ($null -ne $result) { Add-TypeName -To $result -Name 'RunResult' }
    Write-Failure -Cmdlet $Cmdlet -Result $result
}
