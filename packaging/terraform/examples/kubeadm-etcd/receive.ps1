# Writes its standard input to a file that only SYSTEM and administrators can read.
$ErrorActionPreference = 'Stop'
$path = '${path}'
$folder = Split-Path -Path $path
if (-not (Test-Path -LiteralPath 'C:\k')) { New-Item -Path 'C:\k' -ItemType Directory | Out-Null }
& icacls.exe 'C:\k' /inheritance:r /grant:r '*S-1-5-18:(OI)(CI)F' '*S-1-5-32-544:(OI)(CI)F' | Out-Null
if ($LASTEXITCODE -ne 0) { throw "icacls.exe ended with $LASTEXITCODE" }
New-Item -Path $folder -ItemType Directory -Force | Out-Null
$received = [System.Console]::OpenStandardInput()
$file = [System.IO.File]::Create($path)
try { $received.CopyTo($file) } finally { $file.Dispose() }
