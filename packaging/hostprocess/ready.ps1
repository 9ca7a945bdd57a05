# Whether Calico works on the node of this HostProcess container: the readiness of its pod.
$program = Join-Path -Path $env:CONTAINER_SANDBOX_MOUNT_POINT -ChildPath 'calicoctl-win.exe'
$status = ConvertFrom-Json -InputObject ((& $program status --output=json) -join "`n")
if ($status.overall -eq 'Healthy') { exit 0 }
# While the VNI of many nodes is changed, the cluster has another one until it is changed too.
if ($status.overall -eq 'Degraded' -and ($status.problems.id -join ',') -eq 'MixedVni') { exit 0 }
Write-Output -InputObject "$($status.overall): $($status.reasons -join '; ')"
exit 1
