# Brings this node in line with its config whenever it runs, and changes nothing if it is. Made by calicoctl-win, or by its
# Terraform module.
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
$url = '${url}'
$sha256 = '${sha256}'
$config = '${config}'

# Only administrators may write below Program Files.
$folder = Join-Path -Path $env:ProgramFiles -ChildPath 'calicoctl-win-setup'
$program = Join-Path -Path $folder -ChildPath 'calicoctl-win.exe'
$download = Join-Path -Path $folder -ChildPath 'download'

function Test-Sha256 {
    param([string] $Path)
    (Test-Path -LiteralPath $Path) -and (Get-FileHash -LiteralPath $Path -Algorithm SHA256).Hash -eq $sha256
}

try {
    New-Item -Path $folder -ItemType Directory -Force | Out-Null
    if (-not (Test-Sha256 -Path $program)) {
        [System.Net.ServicePointManager]::SecurityProtocol = [System.Net.SecurityProtocolType]::Tls12
        $answer = Invoke-WebRequest -UseBasicParsing -Uri $url -OutFile $download -PassThru
        if (-not (Test-Sha256 -Path $download)) {
            # Windows PowerShell does not say that a connection ended before the whole file had come.
            if ("$((Get-Item -LiteralPath $download).Length)" -ne "$($answer.Headers['Content-Length'])") {
                throw "$url did not come whole"
            }
            Write-Output -InputObject "calicoctl-win was not run: $url does not have the SHA-256 $sha256"
            exit 1
        }
        Move-Item -LiteralPath $download -Destination $program -Force
    }
    $file = Join-Path -Path $folder -ChildPath 'node.yaml'
    [System.IO.File]::WriteAllBytes($file, [System.Convert]::FromBase64String($config))
} catch {
    # The network may not be up yet.
    Write-Output -InputObject "calicoctl-win was not run: $_"
    exit ${retry}
}
& $program apply --yes "--config=$file" --wait-for-lock=10m --exit-codes=${codes}
exit $LASTEXITCODE
