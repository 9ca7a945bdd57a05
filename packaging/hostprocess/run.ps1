# Runs a command of calicoctl-win on the host of this HostProcess container, and waits for its end. The arguments are
# those of the command: run.ps1 apply --drain=never
#
# The run belongs to the host: it continues if this container ends, and the container that Kubernetes starts instead
# waits for its end.
$ErrorActionPreference = 'Stop'
$mount = $env:CONTAINER_SANDBOX_MOUNT_POINT
if (-not $mount) { throw 'this is no HostProcess container: CONTAINER_SANDBOX_MOUNT_POINT is not set' }
if (-not $env:API_SERVER) { throw 'API_SERVER is not set: write it in the manifest, or as apiServer in the ConfigMap calicoctl-win' }
if ($env:API_SERVER -notmatch '^https://[^/\s]+$') { throw "API_SERVER is $($env:API_SERVER): write it as https://HOST:PORT" }

# The files of a container are visible only in it, so a run of the host has its own. SYSTEM and administrators only: one
# of them has a token.
$folder = Join-Path -Path $env:ProgramFiles -ChildPath 'calicoctl-win-pod'
New-Item -Path $folder -ItemType Directory -Force | Out-Null
& icacls.exe $folder /inheritance:r /grant:r '*S-1-5-18:(OI)(CI)F' '*S-1-5-32-544:(OI)(CI)F' | Out-Null
if ($LASTEXITCODE -ne 0) { throw "the rights of $folder cannot be set: icacls ended with $LASTEXITCODE" }

# A run that is in progress keeps its program: each one has its digest in its name.
$image = Join-Path -Path $mount -ChildPath 'calicoctl-win.exe'
$digest = (Get-FileHash -LiteralPath $image -Algorithm SHA256).Hash.Substring(0, 12)
$program = Join-Path -Path $folder -ChildPath "calicoctl-win-$digest.exe"
if (-not (Test-Path -LiteralPath $program)) {
    Copy-Item -LiteralPath $image -Destination "$program.part" -Force
    Move-Item -LiteralPath "$program.part" -Destination $program -Force
}
Get-ChildItem -Path $folder -Filter 'calicoctl-win-*.exe' |
    Where-Object -Property FullName -NE -Value $program |
    Remove-Item -Force -ErrorAction SilentlyContinue

$options = @('--yes', '--detach', '--output=json')
$mounted = Join-Path -Path $mount -ChildPath 'etc\calicoctl-win\node.yaml'
# `uninstall` needs no config.
if (Test-Path -LiteralPath $mounted) {
    $config = Join-Path -Path $folder -ChildPath 'node.yaml'
    Copy-Item -LiteralPath $mounted -Destination $config -Force
    $options += "--config=$config"
}
$account = Join-Path -Path $mount -ChildPath 'var\run\secrets\kubernetes.io\serviceaccount'
$ca = [System.IO.File]::ReadAllBytes((Join-Path -Path $account -ChildPath 'ca.crt'))
$token = [System.IO.File]::ReadAllText((Join-Path -Path $account -ChildPath 'token'))
$login = @{
    'apiVersion' = 'v1'
    'kind' = 'Config'
    'current-context' = 'pod'
    'clusters' = @(@{
        'name' = 'pod'
        'cluster' = @{
            'server' = $env:API_SERVER
            'certificate-authority-data' = [System.Convert]::ToBase64String($ca)
        }
    })
    'users' = @(@{ 'name' = 'pod'; 'user' = @{ 'token' = $token.Trim() } })
    'contexts' = @(@{ 'name' = 'pod'; 'context' = @{ 'cluster' = 'pod'; 'user' = 'pod' } })
}
$kubeconfig = Join-Path -Path $folder -ChildPath 'kubeconfig'
[System.IO.File]::WriteAllText($kubeconfig, (ConvertTo-Json -InputObject $login -Depth 5))
$options += "--kubeconfig=$kubeconfig"

# The last line of the log, from which `fleet status` reads the cause. kubelet keeps the last 2,048 bytes of a log as the
# message of a failed container (MaxContainerTerminationMessageLogLength in Kubernetes' pkg/kubelet/container), so the
# line is shorter. The id is at its end, which is kept in any case.
function Write-Result {
    param($Result)
    $cause = [ordered]@{ 'exit_name' = $Result.exit_name; 'what' = $Result.msg; 'id' = 'Failed' }
    if ($Result.error) {
        $cause['what'] = $Result.error.what
        $cause['id'] = $Result.error.id
    }
    $what = [string] $cause['what']
    $length = 1000
    do {
        if ($what.Length -gt $length) { $cause['what'] = $what.Substring(0, $length) + '...' }
        $line = 'result: ' + (ConvertTo-Json -InputObject $cause -Compress)
        # JSON has up to six bytes for a character.
        $length = $length - 100
    } while ([System.Text.Encoding]::UTF8.GetByteCount($line) -gt 2000 -and $length -gt 0)
    Write-Output -InputObject $line
}

$limit = (Get-Date).AddHours(1)
do {
    $started = (& $program @args @options) -join "`n"
    $code = $LASTEXITCODE
    $run = $null
    if ($code -eq 0) {
        $run = (ConvertFrom-Json -InputObject $started).run
        Write-Output -InputObject "run $run on $($env:COMPUTERNAME): $args"
        & $program status --wait --run=$run --timeout=2h --exit-codes=simple
        $code = $LASTEXITCODE
    }
    # The run of an earlier container, or of a person, is in progress: here, so that this one was not started, or on
    # another machine, whose Lease on the Node ended this one.
    $busy = $code -eq 14 -and (Get-Date) -lt $limit
    if ($busy) { Start-Sleep -Seconds 10 }
} while ($busy)
if (-not $run) {
    Write-Output -InputObject $started
    Write-Result -Result (ConvertFrom-Json -InputObject $started)
    exit $code
}
& $program logs --run=$run
if ($code -ne 0) {
    $ended = ConvertFrom-Json -InputObject ((& $program status --run=$run --output=json) -join "`n")
    $result = $ended.result
    # A run that was interrupted, or did not end in time, has none.
    if (-not $result) {
        $why = @{ 'id' = 'RunInProgress'; 'what' = 'the run did not end within 2 hours' }
        if ($ended.state -eq 'interrupted') {
            $why = @{ 'id' = 'InterruptedRun'; 'what' = "the run was interrupted: $($ended.at)" }
        }
        $result = @{ 'exit_name' = 'UNHEALTHY'; 'error' = $why }
    }
    Write-Result -Result $result
}
exit $code
