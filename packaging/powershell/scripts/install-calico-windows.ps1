<#
.SYNOPSIS
    Installs Calico with the parameters of Calico's own install-calico-windows.ps1, by calicoctl-win.
.DESCRIPTION
    Shows the command that it runs. What is not given is detected, or is as in the config of the installed Calico:
    unlike the original, an empty parameter changes no setting.
#>
param(
    [string] $ReleaseBaseURL = '',
    [string] $ReleaseFile = '',
    [string] $KubeVersion = '',
    [string] $DownloadOnly = 'no',
    [string] $StartCalico = 'yes',
    [string] $AutoCreateServiceAccountTokenSecret = '',
    [string] $Datastore = '',
    [string] $EtcdEndpoints = '',
    [string] $EtcdTlsSecretName = '',
    [string] $EtcdKey = '',
    [string] $EtcdCert = '',
    [string] $EtcdCaCert = '',
    [string] $ServiceCidr = '',
    [string] $DNSServerIPs = '',
    [string] $CalicoBackend = ''
)

# The program beside this script or in the folder above, else the one in the PATH.
$program = 'calicoctl-win.exe'
foreach ($folder in (Split-Path -Path $PSScriptRoot -Parent), $PSScriptRoot) {
    $there = Join-Path -Path $folder -ChildPath 'calicoctl-win.exe'
    if (Test-Path -LiteralPath $there) { $program = $there }
}

if ($KubeVersion) { $KubeVersion = "v$($KubeVersion.TrimStart('v'))" }
if ($CalicoBackend -eq 'bgp') { $CalicoBackend = 'windows-bgp' }
if ($AutoCreateServiceAccountTokenSecret) {
    $AutoCreateServiceAccountTokenSecret = "$($AutoCreateServiceAccountTokenSecret -eq 'yes')".ToLowerInvariant()
}

# Only an install can leave the services stopped, or the network untouched.
$options = @('apply', '--yes')
if ($StartCalico -ne 'yes') { $options = @('install', '--yes', '--no-start') }
if ($DownloadOnly -eq 'yes') { $options = @('install', '--yes', '--download-only') }
if ($ReleaseBaseURL -and $ReleaseFile) {
    $options += "--release=$($ReleaseBaseURL.TrimEnd('/'))/$ReleaseFile"
} elseif ($ReleaseFile -match '^calico-windows-(v[\d.]+)\.zip$' -and -not (Test-Path -LiteralPath $ReleaseFile)) {
    # As the original: the zip of that name from the project's release page.
    $options += "--release=$($Matches[1])"
} elseif ($ReleaseFile) {
    $options += "--release=$ReleaseFile"
} elseif ($ReleaseBaseURL) {
    $options += "--set=calico.source.urlTemplate=$($ReleaseBaseURL.TrimEnd('/'))/calico-windows-{version}.zip"
}
# kubelet and kube-proxy of that version; a service of that name that is there stays as it is.
if ($KubeVersion) { $options += '--set=kubernetes.node.install=true' }
$settings = [ordered]@{
    'kubernetes.node.version' = $KubeVersion
    'kubernetes.createServiceAccountToken' = $AutoCreateServiceAccountTokenSecret
    'datastore.type' = $Datastore
    'datastore.etcd.endpoints' = $EtcdEndpoints
    'datastore.etcd.tlsSecretRef.name' = $EtcdTlsSecretName
    'datastore.etcd.keyFile' = $EtcdKey
    'datastore.etcd.certFile' = $EtcdCert
    'datastore.etcd.caCertFile' = $EtcdCaCert
    'kubernetes.serviceCIDRs' = $ServiceCidr
    'kubernetes.dns.servers' = $DNSServerIPs
    'calicoNetwork.backend' = $CalicoBackend
}
foreach ($path in $settings.Keys) {
    if ($settings[$path]) { $options += "--set=$path=$($settings[$path])" }
}

Write-Output -InputObject "calicoctl-win $options"
& $program $options
exit $LASTEXITCODE
