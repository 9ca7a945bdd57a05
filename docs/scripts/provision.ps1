# Brings a Windows node in line with its config: .\provision.ps1 -c node.yaml
$tries = 20
$pause = 30 # seconds

function Invoke-Apply($options) {
    $json = & calicoctl-win.exe apply --yes -o json --wait-for-lock 10m $options
    $json | Out-String | ConvertFrom-Json
}

for ($try = 0; $try -lt $tries; $try++) {
    $result = Invoke-Apply $args
    if ($result.success -or -not $result.error.retryable) { break }
    Start-Sleep -Seconds $pause
}
if (-not $result.success) {
    $result.error | ConvertTo-Json | Write-Host
    exit 1
}
if ($result.changed) { Write-Host 'changed' } else { Write-Host 'nothing to do' }
if ($result.reboot_required) { Restart-Computer }
