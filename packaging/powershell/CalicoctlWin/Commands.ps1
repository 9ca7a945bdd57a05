# Made of the command line by `CALICO_WIN_WRITE_DOCS=1 cargo test --test it -- powershell`: do not edit.

function Test-CalicoNode {
    <#
    .SYNOPSIS
        Check this machine, the cluster and the release; changes nothing
    .DESCRIPTION
        Runs calicoctl-win preflight. Changes nothing.
    .PARAMETER Wait
        Repeat until all checks pass
    .PARAMETER Timeout
        How long to wait, for example 90s or 10m
    .PARAMETER All
        Show every check, also those that pass
    .PARAMETER Deep
        Also ask Windows what this program assumes of it: the rows of selftest that only read
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Test-CalicoNode -Config node.yaml | Where-Object -Property Status -EQ fail
    .OUTPUTS
        CalicoctlWin.Check
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Check')]
    param(
        [switch] $Wait,
        [string] $Timeout,
        [switch] $All,
        [switch] $Deep,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Wait = '--wait'
        Timeout = '--timeout'
        All = '--all'
        Deep = '--deep'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'preflight' -Bound $PSBoundParameters -Options $options -Type 'Check' -Expand 'Checks'
}

function Get-CalicoPlan {
    <#
    .SYNOPSIS
        Show what install or uninstall would change
    .DESCRIPTION
        Runs calicoctl-win plan. Changes nothing.
    .PARAMETER Release
        Calico release: a version, a zip, an unpacked folder, or a URL
    .PARAMETER Sha256
        SHA-256 that the archive must have
    .PARAMETER Bundle
        File with everything, of release bundle; nothing is downloaded, and --sha256 is the file's
    .PARAMETER Uninstall
        Plan the removal instead
    .PARAMETER Adopted
        With --uninstall: as in uninstall
    .PARAMETER Out
        Save the plan with its config, for: apply --plan FILE
    .PARAMETER Facts
        Plan for the node that this facts file describes, on any machine
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Get-CalicoPlan -Config node.yaml).Changes
    .OUTPUTS
        CalicoctlWin.Plan
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Plan')]
    param(
        [string] $Release,
        [string] $Sha256,
        [string] $Bundle,
        [switch] $Uninstall,
        [ValidateSet('restore', 'remove')] [string] $Adopted,
        [string] $Out,
        [string] $Facts,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Release = '--release'
        Sha256 = '--sha256'
        Bundle = '--bundle'
        Uninstall = '--uninstall'
        Adopted = '--adopted'
        Out = '--out'
        Facts = '--facts'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'plan' -Bound $PSBoundParameters -Options $options -Type 'Plan'
}

function Set-CalicoNode {
    <#
    .SYNOPSIS
        Install, reconfigure or upgrade as needed, for scripts; does nothing if the node is as the config says
    .DESCRIPTION
        Runs calicoctl-win apply. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Release
        Calico release: a version, a zip, an unpacked folder, or a URL
    .PARAMETER Sha256
        SHA-256 that the archive must have
    .PARAMETER Bundle
        File with everything, of release bundle; nothing is downloaded, and --sha256 is the file's
    .PARAMETER Plan
        Apply a saved plan, with the config in it; refused if the node has changed since
    .PARAMETER AllowDowngrade
        Allow an older release than the one on this node
    .PARAMETER Drain
        When to drain the node first; auto: if the change interrupts pods
    .PARAMETER IgnoreDaemonsets
        Leave pods of DaemonSets where they are
    .PARAMETER DeleteEmptydirData
        Also pods with emptyDir volumes, whose data is deleted
    .PARAMETER Force
        Also pods without a controller, and pods marked as not safe to evict
    .PARAMETER GracePeriod
        Seconds each pod has to stop; -1 uses the value of the pod
    .PARAMETER DrainTimeout
        Longest wait for the drain, for example 90s or 10m; 0 waits forever [default: 10m]
    .PARAMETER PodSelector
        Only pods with these labels
    .PARAMETER DisableEviction
        Delete pods instead of evicting them; ignores disruption budgets
    .PARAMETER SkipWaitForDeleteTimeout
        Do not wait for pods whose deletion is older than this many seconds; 0 waits
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Set-CalicoNode -Config node.yaml -Confirm:$false
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string] $Release,
        [string] $Sha256,
        [string] $Bundle,
        [string] $Plan,
        [switch] $AllowDowngrade,
        [ValidateSet('auto', 'never', 'always')] [string] $Drain,
        [switch] $IgnoreDaemonsets,
        [switch] $DeleteEmptydirData,
        [switch] $Force,
        [string] $GracePeriod,
        [string] $DrainTimeout,
        [string] $PodSelector,
        [switch] $DisableEviction,
        [string] $SkipWaitForDeleteTimeout,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Release = '--release'
        Sha256 = '--sha256'
        Bundle = '--bundle'
        Plan = '--plan'
        AllowDowngrade = '--allow-downgrade'
        Drain = '--drain'
        IgnoreDaemonsets = '--ignore-daemonsets='
        DeleteEmptydirData = '--delete-emptydir-data='
        Force = '--force='
        GracePeriod = '--grace-period'
        DrainTimeout = '--drain-timeout'
        PodSelector = '--pod-selector'
        DisableEviction = '--disable-eviction='
        SkipWaitForDeleteTimeout = '--skip-wait-for-delete-timeout'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'apply' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Install-CalicoNode {
    <#
    .SYNOPSIS
        Install Calico, or bring this node in line with the config
    .DESCRIPTION
        Runs calicoctl-win install. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Release
        Calico release: a version, a zip, an unpacked folder, or a URL
    .PARAMETER Sha256
        SHA-256 that the archive must have
    .PARAMETER Bundle
        File with everything, of release bundle; nothing is downloaded, and --sha256 is the file's
    .PARAMETER Plan
        Apply a saved plan, with the config in it; refused if the node has changed since
    .PARAMETER AllowDowngrade
        Allow an older release than the one on this node
    .PARAMETER NoStart
        Register the services but do not start them
    .PARAMETER Prepare
        Prepare an image: put the release, this program, kubelet and kube-proxy in place and register the services, disabled; asks no cluster, changes no network, and writes nothing that names this machine
    .PARAMETER DownloadOnly
        Download and verify the release, then stop
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Install-CalicoNode -Config node.yaml -Release v3.32.1
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string] $Release,
        [string] $Sha256,
        [string] $Bundle,
        [string] $Plan,
        [switch] $AllowDowngrade,
        [switch] $NoStart,
        [switch] $Prepare,
        [switch] $DownloadOnly,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Release = '--release'
        Sha256 = '--sha256'
        Bundle = '--bundle'
        Plan = '--plan'
        AllowDowngrade = '--allow-downgrade'
        NoStart = '--no-start'
        Prepare = '--prepare'
        DownloadOnly = '--download-only'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'install' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Update-CalicoNode {
    <#
    .SYNOPSIS
        Change a running node; drains it first if the change interrupts pods
    .DESCRIPTION
        Runs calicoctl-win reconfigure. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Unset
        Reset a field to its default, or to what the cluster says; repeatable
    .PARAMETER Plan
        Apply a saved plan, with the config in it; refused if the node has changed since
    .PARAMETER AllowDowngrade
        Allow an older release than the one on this node
    .PARAMETER Mode
        try: revert automatically unless the change is confirmed in time [default: auto]
    .PARAMETER ConfirmTimeout
        With --mode try: how long to wait for confirm [default: 5m]
    .PARAMETER WaitForClusterVni
        Keep pods off until FelixConfiguration has this node's VNI; at most this long
    .PARAMETER NoDrain
        Do not drain the node, even if the change interrupts pods
    .PARAMETER IgnoreDaemonsets
        Leave pods of DaemonSets where they are
    .PARAMETER DeleteEmptydirData
        Also pods with emptyDir volumes, whose data is deleted
    .PARAMETER Force
        Also pods without a controller, and pods marked as not safe to evict
    .PARAMETER GracePeriod
        Seconds each pod has to stop; -1 uses the value of the pod
    .PARAMETER DrainTimeout
        Longest wait for the drain, for example 90s or 10m; 0 waits forever [default: 10m]
    .PARAMETER PodSelector
        Only pods with these labels
    .PARAMETER DisableEviction
        Delete pods instead of evicting them; ignores disruption budgets
    .PARAMETER SkipWaitForDeleteTimeout
        Do not wait for pods whose deletion is older than this many seconds; 0 waits
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Update-CalicoNode -Set calicoNetwork.vxlan.vxlanVNI=5000 -Mode try
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string[]] $Unset,
        [string] $Plan,
        [switch] $AllowDowngrade,
        [ValidateSet('auto', 'try')] [string] $Mode,
        [string] $ConfirmTimeout,
        [string] $WaitForClusterVni,
        [switch] $NoDrain,
        [switch] $IgnoreDaemonsets,
        [switch] $DeleteEmptydirData,
        [switch] $Force,
        [string] $GracePeriod,
        [string] $DrainTimeout,
        [string] $PodSelector,
        [switch] $DisableEviction,
        [string] $SkipWaitForDeleteTimeout,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Unset = '--unset'
        Plan = '--plan'
        AllowDowngrade = '--allow-downgrade'
        Mode = '--mode'
        ConfirmTimeout = '--confirm-timeout'
        WaitForClusterVni = '--wait-for-cluster-vni'
        NoDrain = '--no-drain'
        IgnoreDaemonsets = '--ignore-daemonsets='
        DeleteEmptydirData = '--delete-emptydir-data='
        Force = '--force='
        GracePeriod = '--grace-period'
        DrainTimeout = '--drain-timeout'
        PodSelector = '--pod-selector'
        DisableEviction = '--disable-eviction='
        SkipWaitForDeleteTimeout = '--skip-wait-for-delete-timeout'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'reconfigure' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Update-CalicoRelease {
    <#
    .SYNOPSIS
        Upgrade Calico, or this program; rolled back if the node does not work
    .DESCRIPTION
        Runs calicoctl-win upgrade. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Release
        Calico release: a version, a zip, an unpacked folder, or a URL
    .PARAMETER Sha256
        SHA-256 that the archive must have
    .PARAMETER Bundle
        File with everything, of release bundle; nothing is downloaded, and --sha256 is the file's
    .PARAMETER Plan
        Apply a saved plan, with the config in it; refused if the node has changed since
    .PARAMETER AllowDowngrade
        Allow an older release than the one on this node
    .PARAMETER Drain
        Drain the node first, even if pods keep their network
    .PARAMETER NoDrain
        Do not drain the node, even if the change interrupts pods
    .PARAMETER IgnoreDaemonsets
        Leave pods of DaemonSets where they are
    .PARAMETER DeleteEmptydirData
        Also pods with emptyDir volumes, whose data is deleted
    .PARAMETER Force
        Also pods without a controller, and pods marked as not safe to evict
    .PARAMETER GracePeriod
        Seconds each pod has to stop; -1 uses the value of the pod
    .PARAMETER DrainTimeout
        Longest wait for the drain, for example 90s or 10m; 0 waits forever [default: 10m]
    .PARAMETER PodSelector
        Only pods with these labels
    .PARAMETER DisableEviction
        Delete pods instead of evicting them; ignores disruption budgets
    .PARAMETER SkipWaitForDeleteTimeout
        Do not wait for pods whose deletion is older than this many seconds; 0 waits
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Update-CalicoRelease -Release v3.32.1 -WhatIf
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string] $Release,
        [string] $Sha256,
        [string] $Bundle,
        [string] $Plan,
        [switch] $AllowDowngrade,
        [switch] $Drain,
        [switch] $NoDrain,
        [switch] $IgnoreDaemonsets,
        [switch] $DeleteEmptydirData,
        [switch] $Force,
        [string] $GracePeriod,
        [string] $DrainTimeout,
        [string] $PodSelector,
        [switch] $DisableEviction,
        [string] $SkipWaitForDeleteTimeout,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Release = '--release'
        Sha256 = '--sha256'
        Bundle = '--bundle'
        Plan = '--plan'
        AllowDowngrade = '--allow-downgrade'
        Drain = '--drain'
        NoDrain = '--no-drain'
        IgnoreDaemonsets = '--ignore-daemonsets='
        DeleteEmptydirData = '--delete-emptydir-data='
        Force = '--force='
        GracePeriod = '--grace-period'
        DrainTimeout = '--drain-timeout'
        PodSelector = '--pod-selector'
        DisableEviction = '--disable-eviction='
        SkipWaitForDeleteTimeout = '--skip-wait-for-delete-timeout'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'upgrade' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Switch-CalicoFlannel {
    <#
    .SYNOPSIS
        Drain the node, remove Flannel, install Calico and verify; resume --undo restores Flannel
    .DESCRIPTION
        Runs calicoctl-win migrate from flannel. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Release
        Calico release: a version, a zip, an unpacked folder, or a URL
    .PARAMETER Sha256
        SHA-256 that the archive must have
    .PARAMETER Bundle
        File with everything, of release bundle; nothing is downloaded, and --sha256 is the file's
    .PARAMETER NoDrain
        Do not drain the node; refused if pods use Flannel's network
    .PARAMETER IgnoreDaemonsets
        Leave pods of DaemonSets where they are
    .PARAMETER DeleteEmptydirData
        Also pods with emptyDir volumes, whose data is deleted
    .PARAMETER Force
        Also pods without a controller, and pods marked as not safe to evict
    .PARAMETER GracePeriod
        Seconds each pod has to stop; -1 uses the value of the pod
    .PARAMETER DrainTimeout
        Longest wait for the drain, for example 90s or 10m; 0 waits forever [default: 10m]
    .PARAMETER PodSelector
        Only pods with these labels
    .PARAMETER DisableEviction
        Delete pods instead of evicting them; ignores disruption budgets
    .PARAMETER SkipWaitForDeleteTimeout
        Do not wait for pods whose deletion is older than this many seconds; 0 waits
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Switch-CalicoFlannel -Config node.yaml
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string] $Release,
        [string] $Sha256,
        [string] $Bundle,
        [switch] $NoDrain,
        [switch] $IgnoreDaemonsets,
        [switch] $DeleteEmptydirData,
        [switch] $Force,
        [string] $GracePeriod,
        [string] $DrainTimeout,
        [string] $PodSelector,
        [switch] $DisableEviction,
        [string] $SkipWaitForDeleteTimeout,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Release = '--release'
        Sha256 = '--sha256'
        Bundle = '--bundle'
        NoDrain = '--no-drain'
        IgnoreDaemonsets = '--ignore-daemonsets='
        DeleteEmptydirData = '--delete-emptydir-data='
        Force = '--force='
        GracePeriod = '--grace-period'
        DrainTimeout = '--drain-timeout'
        PodSelector = '--pod-selector'
        DisableEviction = '--disable-eviction='
        SkipWaitForDeleteTimeout = '--skip-wait-for-delete-timeout'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'migrate', 'from', 'flannel' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Confirm-CalicoChange {
    <#
    .SYNOPSIS
        Keep a change made with --mode try, or revert it
    .DESCRIPTION
        Runs calicoctl-win confirm. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Revert
        Revert the change now
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Confirm-CalicoChange
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [switch] $Revert,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Revert = '--revert'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'confirm' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -in 'Low', 'Medium')
}

function Restore-CalicoNode {
    <#
    .SYNOPSIS
        Return to the previous generation, or to a named one
    .DESCRIPTION
        Runs calicoctl-win rollback. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER To
        Number of the generation [default: the previous one]
    .PARAMETER NoDrain
        Do not drain the node, even if the change interrupts pods
    .PARAMETER IgnoreDaemonsets
        Leave pods of DaemonSets where they are
    .PARAMETER DeleteEmptydirData
        Also pods with emptyDir volumes, whose data is deleted
    .PARAMETER Force
        Also pods without a controller, and pods marked as not safe to evict
    .PARAMETER GracePeriod
        Seconds each pod has to stop; -1 uses the value of the pod
    .PARAMETER DrainTimeout
        Longest wait for the drain, for example 90s or 10m; 0 waits forever [default: 10m]
    .PARAMETER PodSelector
        Only pods with these labels
    .PARAMETER DisableEviction
        Delete pods instead of evicting them; ignores disruption budgets
    .PARAMETER SkipWaitForDeleteTimeout
        Do not wait for pods whose deletion is older than this many seconds; 0 waits
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Restore-CalicoNode -To 3
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string] $To,
        [switch] $NoDrain,
        [switch] $IgnoreDaemonsets,
        [switch] $DeleteEmptydirData,
        [switch] $Force,
        [string] $GracePeriod,
        [string] $DrainTimeout,
        [string] $PodSelector,
        [switch] $DisableEviction,
        [string] $SkipWaitForDeleteTimeout,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        To = '--to'
        NoDrain = '--no-drain'
        IgnoreDaemonsets = '--ignore-daemonsets='
        DeleteEmptydirData = '--delete-emptydir-data='
        Force = '--force='
        GracePeriod = '--grace-period'
        DrainTimeout = '--drain-timeout'
        PodSelector = '--pod-selector'
        DisableEviction = '--disable-eviction='
        SkipWaitForDeleteTimeout = '--skip-wait-for-delete-timeout'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'rollback' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Uninstall-CalicoNode {
    <#
    .SYNOPSIS
        Remove Calico and restore the previous state
    .DESCRIPTION
        Runs calicoctl-win uninstall. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Adopted
        What to do with an installation by Calico's own scripts that this tool adopted [default: restore]; one that it did not adopt is removed
    .PARAMETER Purge
        Also remove the state, logs and receipts of calicoctl-win
    .PARAMETER DeleteTokenSecret
        Also delete the token secret that install created in the cluster; other nodes that log in with it lose access
    .PARAMETER Drain
        Drain the node first; it stays cordoned
    .PARAMETER ClusterTraces
        Also release this node's IPAM blocks, and remove Calico's annotations from the Node
    .PARAMETER IgnoreDaemonsets
        Leave pods of DaemonSets where they are
    .PARAMETER DeleteEmptydirData
        Also pods with emptyDir volumes, whose data is deleted
    .PARAMETER Force
        Also pods without a controller, and pods marked as not safe to evict
    .PARAMETER GracePeriod
        Seconds each pod has to stop; -1 uses the value of the pod
    .PARAMETER DrainTimeout
        Longest wait for the drain, for example 90s or 10m; 0 waits forever [default: 10m]
    .PARAMETER PodSelector
        Only pods with these labels
    .PARAMETER DisableEviction
        Delete pods instead of evicting them; ignores disruption budgets
    .PARAMETER SkipWaitForDeleteTimeout
        Do not wait for pods whose deletion is older than this many seconds; 0 waits
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Uninstall-CalicoNode -Drain
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [ValidateSet('restore', 'remove')] [string] $Adopted,
        [switch] $Purge,
        [switch] $DeleteTokenSecret,
        [switch] $Drain,
        [switch] $ClusterTraces,
        [switch] $IgnoreDaemonsets,
        [switch] $DeleteEmptydirData,
        [switch] $Force,
        [string] $GracePeriod,
        [string] $DrainTimeout,
        [string] $PodSelector,
        [switch] $DisableEviction,
        [string] $SkipWaitForDeleteTimeout,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Adopted = '--adopted'
        Purge = '--purge'
        DeleteTokenSecret = '--delete-token-secret'
        Drain = '--drain'
        ClusterTraces = '--cluster-traces'
        IgnoreDaemonsets = '--ignore-daemonsets='
        DeleteEmptydirData = '--delete-emptydir-data='
        Force = '--force='
        GracePeriod = '--grace-period'
        DrainTimeout = '--drain-timeout'
        PodSelector = '--pod-selector'
        DisableEviction = '--disable-eviction='
        SkipWaitForDeleteTimeout = '--skip-wait-for-delete-timeout'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'uninstall' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Repair-CalicoNode {
    <#
    .SYNOPSIS
        Restore what was changed since the last run
    .DESCRIPTION
        Runs calicoctl-win repair. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER NoDrain
        Do not drain the node, even if the change interrupts pods
    .PARAMETER IgnoreDaemonsets
        Leave pods of DaemonSets where they are
    .PARAMETER DeleteEmptydirData
        Also pods with emptyDir volumes, whose data is deleted
    .PARAMETER Force
        Also pods without a controller, and pods marked as not safe to evict
    .PARAMETER GracePeriod
        Seconds each pod has to stop; -1 uses the value of the pod
    .PARAMETER DrainTimeout
        Longest wait for the drain, for example 90s or 10m; 0 waits forever [default: 10m]
    .PARAMETER PodSelector
        Only pods with these labels
    .PARAMETER DisableEviction
        Delete pods instead of evicting them; ignores disruption budgets
    .PARAMETER SkipWaitForDeleteTimeout
        Do not wait for pods whose deletion is older than this many seconds; 0 waits
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Repair-CalicoNode
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [switch] $NoDrain,
        [switch] $IgnoreDaemonsets,
        [switch] $DeleteEmptydirData,
        [switch] $Force,
        [string] $GracePeriod,
        [string] $DrainTimeout,
        [string] $PodSelector,
        [switch] $DisableEviction,
        [string] $SkipWaitForDeleteTimeout,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        NoDrain = '--no-drain'
        IgnoreDaemonsets = '--ignore-daemonsets='
        DeleteEmptydirData = '--delete-emptydir-data='
        Force = '--force='
        GracePeriod = '--grace-period'
        DrainTimeout = '--drain-timeout'
        PodSelector = '--pod-selector'
        DisableEviction = '--disable-eviction='
        SkipWaitForDeleteTimeout = '--skip-wait-for-delete-timeout'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'repair' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Resume-CalicoRun {
    <#
    .SYNOPSIS
        Finish an interrupted run, or undo it
    .DESCRIPTION
        Runs calicoctl-win resume. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Undo
        Restore the state before the run
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Resume-CalicoRun -Undo
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [switch] $Undo,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Undo = '--undo'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'resume' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Get-CalicoNode {
    <#
    .SYNOPSIS
        Show services, HNS networks, CNI files, credentials and drift
    .DESCRIPTION
        Runs calicoctl-win status. Changes nothing.
    .PARAMETER Wait
        Wait until the node is healthy and no run is in progress
    .PARAMETER Timeout
        How long to wait, for example 90s or 10m
    .PARAMETER Run
        Show the state or outcome of a run; exits as the run did
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Get-CalicoNode).Problems
    .OUTPUTS
        CalicoctlWin.Status
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Status')]
    param(
        [switch] $Wait,
        [string] $Timeout,
        [string] $Run,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Wait = '--wait'
        Timeout = '--timeout'
        Run = '--run'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'status' -Bound $PSBoundParameters -Options $options -Type 'Status'
}

function Test-CalicoConnectivity {
    <#
    .SYNOPSIS
        Test whether pods and services work on this node
    .DESCRIPTION
        Runs calicoctl-win verify. Changes nothing.
    .PARAMETER Pods
        Also start pods, here and on a Linux node, and test their connections; they are removed afterwards
    .PARAMETER ImageWindows
        Image of the pods on this node: agnhost for its build of Windows, or one with the same commands
    .PARAMETER ImageLinux
        Image of the pods on the Linux node: agnhost, or one with the same commands
    .PARAMETER PullSecret
        Secret with which the images are pulled; a copy is used
    .PARAMETER StartTimeout
        How long a pod may take to start, for example 90s or 10m
    .PARAMETER Egress
        What a pod must reach outside of the pod network [default: the API server]
    .PARAMETER Demo
        Also try network policies that deny all and allow one, and leave them and the pods in place to look at
    .PARAMETER Remove
        Remove what --demo, or an interrupted verify, left in the cluster, and test nothing
    .PARAMETER JunitFile
        Also write the probes to this file as JUnit's test results
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Test-CalicoConnectivity -Pods
    .OUTPUTS
        CalicoctlWin.Probe
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Probe')]
    param(
        [switch] $Pods,
        [string] $ImageWindows,
        [string] $ImageLinux,
        [string] $PullSecret,
        [string] $StartTimeout,
        [string] $Egress,
        [switch] $Demo,
        [switch] $Remove,
        [string] $JunitFile,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Pods = '--pods'
        ImageWindows = '--image-windows'
        ImageLinux = '--image-linux'
        PullSecret = '--pull-secret'
        StartTimeout = '--start-timeout'
        Egress = '--egress'
        Demo = '--demo'
        Remove = '--remove'
        JunitFile = '--junit-file'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'verify' -Bound $PSBoundParameters -Options $options -Type 'Probe' -Expand 'Probes'
}

function Get-CalicoHistory {
    <#
    .SYNOPSIS
        Show the runs on this node: when, by whom, how each ended
    .DESCRIPTION
        Runs calicoctl-win history. Changes nothing.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Get-CalicoHistory | Select-Object -Last 5
    .OUTPUTS
        CalicoctlWin.PastRun
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.PastRun')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'history' -Bound $PSBoundParameters -Options $options -Type 'PastRun' -Expand 'Runs'
}

function Get-CalicoLog {
    <#
    .SYNOPSIS
        Show or follow the logs of the components
    .DESCRIPTION
        Runs calicoctl-win logs. Changes nothing.
    .PARAMETER Component
        Only this component
    .PARAMETER Run
        Only this run of calicoctl-win
    .PARAMETER Tail
        Only the last lines, of all logs together
    .PARAMETER Since
        Only lines since then: 10m, 2h, or a time like 2026-01-02T15:04:05Z
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Get-CalicoLog -Component felix -Since 10m
    .OUTPUTS
        CalicoctlWin.LogLine
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.LogLine')]
    param(
        [ValidateSet('node', 'felix', 'confd', 'kubelet', 'kube-proxy', 'tool')] [string] $Component,
        [string] $Run,
        [string] $Tail,
        [string] $Since,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Component = '--component'
        Run = '--run'
        Tail = '--tail'
        Since = '--since'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'logs' -Bound $PSBoundParameters -Options $options -Type 'LogLine'
}

function Get-CalicoGeneration {
    <#
    .SYNOPSIS
        One line for each generation, oldest first
    .DESCRIPTION
        Runs calicoctl-win receipt list. Changes nothing.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Get-CalicoGeneration | Where-Object -Property CanGoBack
    .OUTPUTS
        CalicoctlWin.Generation
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Generation')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'receipt', 'list' -Bound $PSBoundParameters -Options $options -Type 'Generation' -Expand 'Generations'
}

function Get-CalicoReceipt {
    <#
    .SYNOPSIS
        What a generation consists of, and what on the node belongs to it
    .DESCRIPTION
        Runs calicoctl-win receipt show. Changes nothing.
    .PARAMETER Generation
        Its number [default: the current one]
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Get-CalicoReceipt -Generation 2).Owned
    .OUTPUTS
        CalicoctlWin.Receipt
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Receipt')]
    param(
        [string] $Generation,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Generation = ''
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'receipt', 'show' -Bound $PSBoundParameters -Options $options -Type 'Receipt'
}

function Get-CalicoService {
    <#
    .SYNOPSIS
        Show their state
    .DESCRIPTION
        Runs calicoctl-win service status. Changes nothing.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Get-CalicoService
    .OUTPUTS
        CalicoctlWin.Service
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Service')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'service', 'status' -Bound $PSBoundParameters -Options $options -Type 'Service' -Expand 'Services'
}

function Start-CalicoService {
    <#
    .SYNOPSIS
        Start the services
    .DESCRIPTION
        Runs calicoctl-win service start. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Start-CalicoService
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'service', 'start' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -in 'Low', 'Medium')
}

function Stop-CalicoService {
    <#
    .SYNOPSIS
        Stop the services
    .DESCRIPTION
        Runs calicoctl-win service stop. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Stop-CalicoService
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'service', 'stop' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Restart-CalicoService {
    <#
    .SYNOPSIS
        Stop, then start
    .DESCRIPTION
        Runs calicoctl-win service restart. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Restart-CalicoService
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'service', 'restart' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Install-CalicoKubernetes {
    <#
    .SYNOPSIS
        Install both, and Calico, as the config says: apply with kubernetes.node.install=true
    .DESCRIPTION
        Runs calicoctl-win kubernetes install. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Release
        Calico release: a version, a zip, an unpacked folder, or a URL
    .PARAMETER Sha256
        SHA-256 that the archive must have
    .PARAMETER Bundle
        File with everything, of release bundle; nothing is downloaded, and --sha256 is the file's
    .PARAMETER Containerd
        Also install containerd from its own archive, unless the machine has it; without FILE, from the bundle
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Install-CalicoKubernetes -Config node.yaml
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string] $Release,
        [string] $Sha256,
        [string] $Bundle,
        [string] $Containerd,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Release = '--release'
        Sha256 = '--sha256'
        Bundle = '--bundle'
        Containerd = '--containerd'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'kubernetes', 'install' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Get-CalicoKubernetes {
    <#
    .SYNOPSIS
        Show the services kubelet and kube-proxy: whose they are, their versions, and whether kubelet has joined
    .DESCRIPTION
        Runs calicoctl-win kubernetes status. Changes nothing.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Get-CalicoKubernetes).Services
    .OUTPUTS
        CalicoctlWin.KubernetesStatus
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.KubernetesStatus')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'kubernetes', 'status' -Bound $PSBoundParameters -Options $options -Type 'KubernetesStatus'
}

function Uninstall-CalicoKubernetes {
    <#
    .SYNOPSIS
        Remove both and leave Calico: reconfigure with kubernetes.node.install=false
    .DESCRIPTION
        Runs calicoctl-win kubernetes uninstall. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Uninstall-CalicoKubernetes
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'kubernetes', 'uninstall' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Get-CalicoNetwork {
    <#
    .SYNOPSIS
        Every HNS network of this machine, and whose it is
    .DESCRIPTION
        Runs calicoctl-win network list. Changes nothing.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Get-CalicoNetwork | Where-Object -Property Owner -NE other
    .OUTPUTS
        CalicoctlWin.ListedNetwork
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.ListedNetwork')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'network', 'list' -Bound $PSBoundParameters -Options $options -Type 'ListedNetwork' -Expand 'Networks'
}

function Get-CalicoNetworkDetail {
    <#
    .SYNOPSIS
        One HNS network with its subnets, policies, endpoints and load balancers
    .DESCRIPTION
        Runs calicoctl-win network show. Changes nothing.
    .PARAMETER Network
        Its name, or its id if several have that name
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Get-CalicoNetworkDetail -Network Calico).Endpoints
    .OUTPUTS
        CalicoctlWin.Network
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Network')]
    param(
        [Parameter(Mandatory = $true)] [string] $Network,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Network = ''
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'network', 'show' -Bound $PSBoundParameters -Options $options -Type 'Network'
}

function Reset-CalicoNetwork {
    <#
    .SYNOPSIS
        Drain the node, delete Calico's HNS networks and create them again; other networks stay
    .DESCRIPTION
        Runs calicoctl-win network reset. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER NoDrain
        Do not drain the node: its pods lose their network
    .PARAMETER IgnoreDaemonsets
        Leave pods of DaemonSets where they are
    .PARAMETER DeleteEmptydirData
        Also pods with emptyDir volumes, whose data is deleted
    .PARAMETER Force
        Also pods without a controller, and pods marked as not safe to evict
    .PARAMETER GracePeriod
        Seconds each pod has to stop; -1 uses the value of the pod
    .PARAMETER DrainTimeout
        Longest wait for the drain, for example 90s or 10m; 0 waits forever [default: 10m]
    .PARAMETER PodSelector
        Only pods with these labels
    .PARAMETER DisableEviction
        Delete pods instead of evicting them; ignores disruption budgets
    .PARAMETER SkipWaitForDeleteTimeout
        Do not wait for pods whose deletion is older than this many seconds; 0 waits
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Reset-CalicoNetwork -WhatIf
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [switch] $NoDrain,
        [switch] $IgnoreDaemonsets,
        [switch] $DeleteEmptydirData,
        [switch] $Force,
        [string] $GracePeriod,
        [string] $DrainTimeout,
        [string] $PodSelector,
        [switch] $DisableEviction,
        [string] $SkipWaitForDeleteTimeout,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        NoDrain = '--no-drain'
        IgnoreDaemonsets = '--ignore-daemonsets='
        DeleteEmptydirData = '--delete-emptydir-data='
        Force = '--force='
        GracePeriod = '--grace-period'
        DrainTimeout = '--drain-timeout'
        PodSelector = '--pod-selector'
        DisableEviction = '--disable-eviction='
        SkipWaitForDeleteTimeout = '--skip-wait-for-delete-timeout'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'network', 'reset' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Get-CalicoConfig {
    <#
    .SYNOPSIS
        Print the effective config
    .DESCRIPTION
        Runs calicoctl-win config show. Changes nothing.
    .PARAMETER Origins
        Show where each value comes from
    .PARAMETER Applied
        Show what the current generation was made with instead
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Get-CalicoConfig -Config node.yaml -Origins
    .OUTPUTS
        CalicoctlWin.ConfigField
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.ConfigField')]
    param(
        [switch] $Origins,
        [switch] $Applied,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Origins = '--origins'
        Applied = '--applied'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'config', 'show' -Bound $PSBoundParameters -Options $options -Type 'ConfigField' -Expand 'Fields'
}

function Compare-CalicoConfig {
    <#
    .SYNOPSIS
        Show how the effective config differs from what the current generation was made with
    .DESCRIPTION
        Runs calicoctl-win config diff. Changes nothing.
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Compare-CalicoConfig -Config node.yaml
    .OUTPUTS
        CalicoctlWin.SettingChange
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.SettingChange')]
    param(
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'config', 'diff' -Bound $PSBoundParameters -Options $options -Type 'SettingChange' -Expand 'SettingsDiff'
}

function Test-CalicoConfig {
    <#
    .SYNOPSIS
        Check the config
    .DESCRIPTION
        Runs calicoctl-win config validate. Changes nothing.
    .PARAMETER Files
        Config files, besides -c
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Test-CalicoConfig -Files node.yaml
    .OUTPUTS
        CalicoctlWin.ConfigValidation
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.ConfigValidation')]
    param(
        [string[]] $Files,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Files = ''
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'config', 'validate' -Bound $PSBoundParameters -Options $options -Type 'ConfigValidation'
}

function Import-CalicoConfig {
    <#
    .SYNOPSIS
        Create a config from the config.ps1 of Calico's scripts, which is read and never run
    .DESCRIPTION
        Runs calicoctl-win config import. With -Out it writes a file; it changes nothing else.
    .PARAMETER File
        The config.ps1
    .PARAMETER Live
        From what this node runs: services, config.ps1, CNI configuration and HNS networks
    .PARAMETER Out
        Write it here instead of printing it; an existing file is left alone
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Import-CalicoConfig -File config.ps1).Unread
    .OUTPUTS
        CalicoctlWin.ConfigImport
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
    [OutputType('CalicoctlWin.ConfigImport')]
    param(
        [string] $File,
        [switch] $Live,
        [string] $Out,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        File = ''
        Live = '--live'
        Out = '--out'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    if ($Out -and -not $PSCmdlet.ShouldProcess('calicoctl-win config import')) { return }
    Read-Document -Cmdlet $PSCmdlet -Command 'config', 'import' -Bound $PSBoundParameters -Options $options -Type 'ConfigImport'
}

function Get-CalicoCredential {
    <#
    .SYNOPSIS
        Show what the node logs in with, its origin and expiry; never the secrets
    .DESCRIPTION
        Runs calicoctl-win credentials show. Changes nothing.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Get-CalicoCredential | Sort-Object -Property Expires
    .OUTPUTS
        CalicoctlWin.Credential
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Credential')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'credentials', 'show' -Bound $PSBoundParameters -Options $options -Type 'Credential' -Expand 'Credentials'
}

function Save-CalicoCredential {
    <#
    .SYNOPSIS
        Fetch credentials into a folder, without changing the node
    .DESCRIPTION
        Runs calicoctl-win credentials fetch. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Out
        Folder for calico-kube-config, or for etcd's server.key, server.crt and ca.crt
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Save-CalicoCredential -Out C:\k\calico
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [Parameter(Mandatory = $true)] [string] $Out,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Out = '--out'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'credentials', 'fetch' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -in 'Low', 'Medium')
}

function Update-CalicoCredential {
    <#
    .SYNOPSIS
        Replace the credentials of the node; Calico's services pick them up
    .DESCRIPTION
        Runs calicoctl-win credentials rotate. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Update-CalicoCredential
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'credentials', 'rotate' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Get-CalicoRelease {
    <#
    .SYNOPSIS
        Show what is in the cache
    .DESCRIPTION
        Runs calicoctl-win release list. Changes nothing.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Get-CalicoRelease
    .OUTPUTS
        CalicoctlWin.Archive
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Archive')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'release', 'list' -Bound $PSBoundParameters -Options $options -Type 'Archive' -Expand 'Archives'
}

function Save-CalicoRelease {
    <#
    .SYNOPSIS
        Download and verify a release into the cache
    .DESCRIPTION
        Runs calicoctl-win release download. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Sha256
        SHA-256 that the archive must have
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Save-CalicoRelease -Release v3.32.1
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string] $Sha256,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Sha256 = '--sha256'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'release', 'download' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -in 'Low', 'Medium')
}

function Export-CalicoBundle {
    <#
    .SYNOPSIS
        Pack all that a node without downloads needs into one file: the release, this program, kubelet and kube-proxy if the config installs them, a list of images, and digests
    .DESCRIPTION
        Runs calicoctl-win release bundle. Writes a file, and changes nothing else.
    .PARAMETER Sha256
        SHA-256 that the archive must have
    .PARAMETER Out
        File to write; must not exist
    .PARAMETER Executable
        calicoctl-win.exe for the node [default: this program]
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Export-CalicoBundle -Config node.yaml -Out bundle.zip).Sha256
    .OUTPUTS
        CalicoctlWin.ReleaseVerification
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
    [OutputType('CalicoctlWin.ReleaseVerification')]
    param(
        [string] $Sha256,
        [Parameter(Mandatory = $true)] [string] $Out,
        [string] $Executable,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Sha256 = '--sha256'
        Out = '--out'
        Executable = '--executable'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    if (-not $PSCmdlet.ShouldProcess('calicoctl-win release bundle')) { return }
    Read-Document -Cmdlet $PSCmdlet -Command 'release', 'bundle' -Bound $PSBoundParameters -Options $options -Type 'ReleaseVerification'
}

function Test-CalicoRelease {
    <#
    .SYNOPSIS
        Check an archive or a bundle: digest, layout, every entry; writes nothing
    .DESCRIPTION
        Runs calicoctl-win release verify. Changes nothing.
    .PARAMETER Zip
        The archive
    .PARAMETER Sha256
        SHA-256 it must have
    .PARAMETER Version
        Calico version it must be; else from its name
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Test-CalicoRelease -Zip calico-windows-v3.32.1.zip
    .OUTPUTS
        CalicoctlWin.ReleaseVerification
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.ReleaseVerification')]
    param(
        [Parameter(Mandatory = $true)] [string] $Zip,
        [string] $Sha256,
        [string] $Version,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Zip = ''
        Sha256 = '--sha256'
        Version = '--version'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'release', 'verify' -Bound $PSBoundParameters -Options $options -Type 'ReleaseVerification'
}

function Expand-CalicoRelease {
    <#
    .SYNOPSIS
        Verify an archive and extract it
    .DESCRIPTION
        Runs calicoctl-win release extract. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Zip
        The archive
    .PARAMETER Dest
        Folder to create; must not exist, or be empty
    .PARAMETER Sha256
        SHA-256 it must have
    .PARAMETER Version
        Calico version it must be; else from its name, else only the entries are checked
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Expand-CalicoRelease -Zip calico-windows-v3.32.1.zip -Dest C:\calico
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [Parameter(Mandatory = $true)] [string] $Zip,
        [Parameter(Mandatory = $true)] [string] $Dest,
        [string] $Sha256,
        [string] $Version,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Zip = ''
        Dest = '--dest'
        Sha256 = '--sha256'
        Version = '--version'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'release', 'extract' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -in 'Low', 'Medium')
}

function Test-CalicoCluster {
    <#
    .SYNOPSIS
        Run the checks that concern the cluster; changes nothing
    .DESCRIPTION
        Runs calicoctl-win cluster check. Changes nothing.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Test-CalicoCluster -Kubeconfig admin.conf
    .OUTPUTS
        CalicoctlWin.Check
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Check')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'cluster', 'check' -Bound $PSBoundParameters -Options $options -Type 'Check' -Expand 'Checks'
}

function Get-CalicoClusterPatch {
    <#
    .SYNOPSIS
        Show the patches that the cluster needs for Windows nodes
    .DESCRIPTION
        Runs calicoctl-win cluster prepare. Changes nothing.
    .PARAMETER Apply
        Apply them; asks first
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Get-CalicoClusterPatch -Kubeconfig admin.conf).Command
    .OUTPUTS
        CalicoctlWin.ClusterPatch
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.ClusterPatch')]
    param(
        [switch] $Apply,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Apply = '--apply'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'cluster', 'prepare' -Bound $PSBoundParameters -Options $options -Type 'ClusterPatch' -Expand 'Patches'
}

function Get-CalicoFleetPlan {
    <#
    .SYNOPSIS
        Show which nodes are changed in which order, what they lose, and about how long it takes
    .DESCRIPTION
        Runs calicoctl-win fleet plan. Changes nothing.
    .PARAMETER Namespace
        Namespace of the DaemonSets
    .PARAMETER Image
        Image for HostProcess containers, made by packaging/hostprocess/image.sh
    .PARAMETER ApiServer
        Address of the API server as the nodes reach it [default: that of the kubeconfig]
    .PARAMETER MaxUnavailable
        Nodes of a wave that may be out at once, also the failed ones: a number, or a share such as 10%
    .PARAMETER Canary
        Change the nodes with this label first
    .PARAMETER Zones
        Change one zone after the other: those in this list, or with `auto` those of the nodes, by name
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Get-CalicoFleetPlan -Config node.yaml -Image registry.example.com/calicoctl-win:0.1.0).Waves
    .OUTPUTS
        CalicoctlWin.FleetPlan
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.FleetPlan')]
    param(
        [string] $Namespace,
        [Parameter(Mandatory = $true)] [string] $Image,
        [string] $ApiServer,
        [string] $MaxUnavailable,
        [string] $Canary,
        [string[]] $Zones,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Namespace = '--namespace'
        Image = '--image'
        ApiServer = '--api-server'
        MaxUnavailable = '--max-unavailable'
        Canary = '--canary'
        Zones = '--zones'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'fleet', 'plan' -Bound $PSBoundParameters -Options $options -Type 'FleetPlan'
}

function Update-CalicoFleet {
    <#
    .SYNOPSIS
        Make the change on every Windows node, wave after wave, and wait for the end; run it again to continue
    .DESCRIPTION
        Runs calicoctl-win fleet apply. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Namespace
        Namespace of the DaemonSets
    .PARAMETER Image
        Image for HostProcess containers, made by packaging/hostprocess/image.sh
    .PARAMETER ApiServer
        Address of the API server as the nodes reach it [default: that of the kubeconfig]
    .PARAMETER MaxUnavailable
        Nodes of a wave that may be out at once, also the failed ones: a number, or a share such as 10%
    .PARAMETER Canary
        Change the nodes with this label first
    .PARAMETER Zones
        Change one zone after the other: those in this list, or with `auto` those of the nodes, by name
    .PARAMETER Timeout
        How long to wait; the wave that has begun continues after it
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER DryRun
        Show what would be done and stop; for fleet apply, =server asks the API server
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Update-CalicoFleet -Config node.yaml -Image registry.example.com/calicoctl-win:0.1.0 -MaxUnavailable 10%
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string] $Namespace,
        [Parameter(Mandatory = $true)] [string] $Image,
        [string] $ApiServer,
        [string] $MaxUnavailable,
        [string] $Canary,
        [string[]] $Zones,
        [string] $Timeout,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [ValidateSet('plan', 'server')] [string] $DryRun,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Namespace = '--namespace'
        Image = '--image'
        ApiServer = '--api-server'
        MaxUnavailable = '--max-unavailable'
        Canary = '--canary'
        Zones = '--zones'
        Timeout = '--timeout'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        DryRun = '--dry-run'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'fleet', 'apply' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Get-CalicoFleet {
    <#
    .SYNOPSIS
        Show how far the change is, and the failed nodes by their cause
    .DESCRIPTION
        Runs calicoctl-win fleet status. Changes nothing.
    .PARAMETER Namespace
        Namespace of the DaemonSets
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Get-CalicoFleet).Failures
    .OUTPUTS
        CalicoctlWin.FleetStatus
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.FleetStatus')]
    param(
        [string] $Namespace,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Namespace = '--namespace'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'fleet', 'status' -Bound $PSBoundParameters -Options $options -Type 'FleetStatus'
}

function Suspend-CalicoFleet {
    <#
    .SYNOPSIS
        Let no further node begin; those that have begun finish
    .DESCRIPTION
        Runs calicoctl-win fleet pause. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Namespace
        Namespace of the DaemonSets
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Suspend-CalicoFleet
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string] $Namespace,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Namespace = '--namespace'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'fleet', 'pause' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -in 'Low', 'Medium')
}

function Resume-CalicoFleet {
    <#
    .SYNOPSIS
        Continue after a pause
    .DESCRIPTION
        Runs calicoctl-win fleet resume. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Namespace
        Namespace of the DaemonSets
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Resume-CalicoFleet
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string] $Namespace,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Namespace = '--namespace'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'fleet', 'resume' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -in 'Low', 'Medium')
}

function Restore-CalicoFleet {
    <#
    .SYNOPSIS
        Return the nodes of the last change to what was installed before
    .DESCRIPTION
        Runs calicoctl-win fleet rollback. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Namespace
        Namespace of the DaemonSets
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Restore-CalicoFleet
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string] $Namespace,
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Namespace = '--namespace'
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'fleet', 'rollback' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Initialize-CalicoCluster {
    <#
    .SYNOPSIS
        Show the patches that the cluster needs for Windows nodes
    .DESCRIPTION
        Runs calicoctl-win cluster prepare --apply. Shows what it would do, and asks; -WhatIf only shows it, and -Confirm:$false does not ask.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Detach
        Continue without this session: prints the name of the run at once, for status and logs
    .PARAMETER AtBoot
        What to do with this run if Windows restarts before it ends [default: leave, or finish with reboot.resumeOnBoot]
    .PARAMETER WaitForLock
        If another run is in progress, wait this long for its end, for example 90s or 10m
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Initialize-CalicoCluster -Kubeconfig admin.conf
    .OUTPUTS
        CalicoctlWin.RunResult
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.RunResult')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [switch] $Detach,
        [ValidateSet('leave', 'finish', 'undo')] [string] $AtBoot,
        [string] $WaitForLock,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Detach = '--detach'
        AtBoot = '--at-boot'
        WaitForLock = '--wait-for-lock'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Invoke-Change -Cmdlet $PSCmdlet -Command 'cluster', 'prepare', '--apply' -Bound $PSBoundParameters -Options $options -IsTrial $WhatIfPreference -Asks ($ConfirmPreference -ne 'None')
}

function Test-CalicoPolicy {
    <#
    .SYNOPSIS
        Show rules that Windows skips, and rules that are expensive there; changes nothing
    .DESCRIPTION
        Runs calicoctl-win policy lint. Changes nothing.
    .PARAMETER File
        Policies in a file, a folder, or on stdin (-), instead of those of the cluster, which is not asked
    .PARAMETER ReleaseLine
        With --file: release line of the cluster's Calico, for example v3.31, as which the files are judged
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Test-CalicoPolicy -File policies.yaml | Where-Object -Property Severity -EQ fail
    .OUTPUTS
        CalicoctlWin.PolicyFinding
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.PolicyFinding')]
    param(
        [string[]] $File,
        [string] $ReleaseLine,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        File = '--file'
        ReleaseLine = '--release-line'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'policy', 'lint' -Bound $PSBoundParameters -Options $options -Type 'PolicyFinding' -Expand 'Findings'
}

function Test-CalicoWindows {
    <#
    .SYNOPSIS
        Prove on this machine what this program assumes of Windows; leaves nothing behind
    .DESCRIPTION
        Runs calicoctl-win selftest --yes. Leaves no changes. With -Disruptive it interrupts an adapter, and asks first.
    .PARAMETER Disruptive
        Also create and delete an overlay network, which interrupts the network of an adapter
    .PARAMETER Adapter
        The adapter whose network may be interrupted [default: one without a gateway, if there are several]
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        Test-CalicoWindows | Where-Object -Property Verdict -EQ fail
    .OUTPUTS
        CalicoctlWin.SelftestRow
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'High')]
    [OutputType('CalicoctlWin.SelftestRow')]
    param(
        [switch] $Disruptive,
        [string] $Adapter,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Disruptive = '--disruptive'
        Adapter = '--adapter'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    if ($Disruptive -and -not $PSCmdlet.ShouldProcess('calicoctl-win selftest')) { return }
    Read-Document -Cmdlet $PSCmdlet -Command 'selftest', '--yes' -Bound $PSBoundParameters -Options $options -Type 'SelftestRow' -Expand 'Rows'
}

function Export-CalicoDiagnosis {
    <#
    .SYNOPSIS
        Collect what explains a problem, without secrets, in a zip with a page to read first
    .DESCRIPTION
        Runs calicoctl-win diagnose. Writes a file, and changes nothing else.
    .PARAMETER Out
        The zip to write; an existing file is left alone [default: one in this folder, named by the machine and the time]
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Export-CalicoDiagnosis -Out C:\Temp\node.zip).Causes
    .OUTPUTS
        CalicoctlWin.Diagnosis
    #>
    [CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
    [OutputType('CalicoctlWin.Diagnosis')]
    param(
        [string] $Out,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Out = '--out'
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    if (-not $PSCmdlet.ShouldProcess('calicoctl-win diagnose')) { return }
    Read-Document -Cmdlet $PSCmdlet -Command 'diagnose' -Bound $PSBoundParameters -Options $options -Type 'Diagnosis'
}

function Get-CalicoExplanation {
    <#
    .SYNOPSIS
        Explain a check, exit code, event or config field
    .DESCRIPTION
        Runs calicoctl-win explain. Changes nothing.
    .PARAMETER Id
        For example StrictAffinity, CLUSTER_UNREACHABLE, 7, phase_complete or calicoNetwork.vxlan.vxlanVNI; a section of the config lists its fields [default: list all]
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Get-CalicoExplanation -Id StrictAffinity).Text
    .OUTPUTS
        CalicoctlWin.Explanation
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Explanation')]
    param(
        [string] $Id,
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Id = ''
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'explain' -Bound $PSBoundParameters -Options $options -Type 'Explanation'
}

function Get-CalicoVersion {
    <#
    .SYNOPSIS
        Print the version
    .DESCRIPTION
        Runs calicoctl-win version. Changes nothing.
    .PARAMETER Config
        Config file; repeat to layer, later ones win, - is stdin
    .PARAMETER Set
        Override one field of the config, for example calicoNetwork.vxlan.vxlanVNI=5000
    .PARAMETER Sandbox
        Work on a sandbox node in this folder instead of this machine
    .PARAMETER SandboxFault
        Make the sandbox fail, to rehearse it (docs/sandbox.md); repeatable
    .PARAMETER Kubeconfig
        Kubeconfig with the rights to install; only this tool uses it
    .PARAMETER Context
        Context in the kubeconfig
    .PARAMETER NodeName
        Name of this machine's Kubernetes Node
    .PARAMETER CalicoNamespace
        Namespace of Calico's service account [default: detected]
    .PARAMETER Proxy
        Proxy for downloads
    .PARAMETER CaFile
        PEM file with CAs to trust for downloads
    .PARAMETER Offline
        Use no network but the cluster
    .PARAMETER IgnorePreflightErrors
        Ids of checks that may fail
    .PARAMETER LogFile
        Write the log here instead of below C:\ProgramData\calicoctl-win\logs
    .EXAMPLE
        (Get-CalicoVersion).Version
    .OUTPUTS
        CalicoctlWin.Version
    #>
    [CmdletBinding()]
    [OutputType('CalicoctlWin.Version')]
    param(
        [string[]] $Config,
        [string[]] $Set,
        [string] $Sandbox,
        [string[]] $SandboxFault,
        [string] $Kubeconfig,
        [string] $Context,
        [string] $NodeName,
        [string] $CalicoNamespace,
        [string] $Proxy,
        [string] $CaFile,
        [switch] $Offline,
        [string[]] $IgnorePreflightErrors,
        [string] $LogFile
    )
    $options = [ordered]@{
        Config = '--config'
        Set = '--set'
        Sandbox = '--sandbox'
        SandboxFault = '--sandbox-fault'
        Kubeconfig = '--kubeconfig'
        Context = '--context'
        NodeName = '--node-name'
        CalicoNamespace = '--calico-namespace'
        Proxy = '--proxy'
        CaFile = '--ca-file'
        Offline = '--offline'
        IgnorePreflightErrors = '--ignore-preflight-errors'
        LogFile = '--log-file'
    }
    Read-Document -Cmdlet $PSCmdlet -Command 'version' -Bound $PSBoundParameters -Options $options -Type 'Version'
}
