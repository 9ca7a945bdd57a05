<powershell>
# Lets Packer connect. The certificate and the firewall rule stay in the image: delete them at the first boot.
$certificate = New-SelfSignedCertificate -DnsName $env:COMPUTERNAME -CertStoreLocation Cert:\LocalMachine\My
New-Item -Path WSMan:\localhost\Listener -Transport HTTPS -Address * -CertificateThumbPrint $certificate.Thumbprint -Force
New-NetFirewallRule -DisplayName 'Packer WinRM' -Direction Inbound -Protocol TCP -LocalPort 5986 -Action Allow
</powershell>
