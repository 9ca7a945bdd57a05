//! The platform of this machine, from its HNS networks, its services and the cloud's metadata service. The
//! order is upstream's (reference: `Get-PlatformType`).

pub mod metadata;

use anyhow::Result;

use crate::facts::{Cloud, Provider};
use crate::item::Id;
use crate::node::{Listing, Node};

use metadata::{Answer, Metadata};

/// Detects the platform. A configured cloud is used as given, and only asked for the instance's name.
///
/// # Errors
/// When the node's networks or services cannot be listed. A metadata service that does not answer, or answers something
/// else, means no cloud.
pub fn detect(node: &dyn Node, given: Option<Provider>, metadata: &Metadata) -> Result<Option<Cloud>> {
    #[cfg(test)]
    crate::counted::count("platform");
    let by_machine = match given {
        Some(provider) => Some((provider, "the config".to_owned())),
        None => by_machine(node)?,
    };
    let answers = match &by_machine {
        Some((provider, _)) if given.is_some() || !may_be_on_a_cloud(*provider) => {
            metadata.ask_as_on(cloud_of(*provider))
        }
        _ => metadata.ask_all(),
    };
    Ok(judge(by_machine, answers))
}

/// Detection by the networks of the cloud's own CNI, and the services of a distribution.
fn by_machine(node: &dyn Node) -> Result<Option<(Provider, String)>> {
    // Without HNS there are no networks; preflight reports that HNS is missing.
    let networks = node.list(Listing::Networks).unwrap_or_default();
    let found = networks.iter().find_map(|(id, _)| match id {
        Id::Network(name) => Some((Provider::of_network(name)?, format!("the HNS network {name}"))),
        _ => None,
    });
    if found.is_some() {
        return Ok(found);
    }
    for provider in Provider::ALL {
        for service in provider.brings().services {
            if node.get(&Id::Service((*service).into()))?.is_some() {
                return Ok(Some((provider, format!("the service {service}"))));
            }
        }
    }
    Ok(None)
}

/// Whether a platform may be on a cloud with a metadata service of its own: a distribution.
fn may_be_on_a_cloud(provider: Provider) -> bool {
    !provider.brings().services.is_empty()
}

/// The cloud whose metadata service a platform has.
fn cloud_of(provider: Provider) -> Provider {
    if provider == Provider::Eks { Provider::Ec2 } else { provider }
}

fn judge(by_machine: Option<(Provider, String)>, mut answers: Vec<Answer>) -> Option<Cloud> {
    // A distribution on a cloud has the cloud's names and routes.
    let may_be = by_machine.as_ref().is_none_or(|(provider, _)| may_be_on_a_cloud(*provider));
    let (provider, evidence) = match answers.first() {
        Some(first) if may_be => (first.provider, first.service.to_owned()),
        _ => by_machine?,
    };
    answers.retain(|answer| answer.provider == cloud_of(provider));
    let instance_name = answers.pop().and_then(|answer| answer.instance_name);
    Some(Cloud { provider, instance_name, evidence })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::item::{NetworkKind, Service, StartType};
    use crate::node::sandbox::SandboxNode;
    use crate::node::sandbox::model::{CloudMetadata, Flavour, Name, NodeNetwork, NodeService};
    use crate::sandbox::metadata::MetadataServer;

    /// A machine with these HNS networks, on this cloud.
    fn found(
        networks: &[&str],
        rancher: Option<&str>,
        cloud: Option<(Flavour, &str)>,
        given: Option<Provider>,
    ) -> Option<Cloud> {
        let folder = TempDir::new().unwrap();
        let mut node = SandboxNode::open(&folder.path().join("node")).unwrap();
        node.edit(|model| {
            for name in networks {
                let network = NodeNetwork {
                    id: (*name).into(),
                    kind: NetworkKind::L2Bridge,
                    subnet: None,
                    gateway: None,
                    vsid: None,
                    adapter: None,
                    management_ip: None,
                    unseen_by_v2: false,
                    policies: Vec::new(),
                    endpoints: Default::default(),
                };
                model.networks.insert(Name::new(*name), network);
            }
            if let Some(service) = rancher {
                let definition = Service {
                    display_name: service.into(),
                    description: String::new(),
                    image_path: r"C:\usr\local\bin\rke2.exe".into(),
                    account: "LocalSystem".into(),
                    start: StartType::Auto,
                    depends_on: Vec::new(),
                    restart_after: Vec::new(),
                    recovery: None,
                    parameters: Default::default(),
                };
                model.services.insert(Name::new(service), NodeService::new(definition, None));
            }
            Ok(())
        })
        .unwrap();
        let server = cloud.map(|(flavour, host_name)| {
            MetadataServer::start(&CloudMetadata { flavour, host_name: host_name.into() }).unwrap()
        });
        let metadata = server.as_ref().map_or_else(Metadata::nowhere, |server| Metadata::at(server.url()));
        detect(&node, given, &metadata).unwrap()
    }

    fn told(cloud: Option<Cloud>) -> String {
        cloud.map_or_else(
            || "nothing".into(),
            |cloud| {
                format!("{:?} {} by {}", cloud.provider, cloud.instance_name.as_deref().unwrap_or("-"), cloud.evidence)
            },
        )
    }

    #[test]
    fn each_platform_is_recognized_by_its_own_traces() {
        let ec2 = Some((Flavour::Ec2, "ip-10-0-0-7.ec2.internal"));
        let gce = Some((Flavour::Gce, "win-1.c.project.internal"));
        let lines = [
            found(&["nat", "azure"], None, None, None),
            found(&["nat", "vpcbr1a2b"], None, ec2, None),
            found(&["nat"], None, ec2, None),
            found(&[], Some("rke2"), ec2, None),
            found(&[], Some("rke2"), None, None),
            found(&["nat"], Some("rancher-wins"), None, None),
            found(&[], None, gce, None),
            found(&["azureother", "nat"], None, None, None),
            found(&["azure"], None, gce, Some(Provider::Gce)),
            found(&["azure"], None, None, Some(Provider::OpenShift)),
        ]
        .map(told);
        insta::assert_snapshot!(lines.join("\n"), @r"
        Aks - by the HNS network azure
        Eks ip-10-0-0-7.ec2.internal by the HNS network vpcbr1a2b
        Ec2 ip-10-0-0-7.ec2.internal by the EC2 instance metadata service
        Ec2 ip-10-0-0-7.ec2.internal by the EC2 instance metadata service
        Rke2 - by the service rke2
        Rke2 - by the service rancher-wins
        Gce win-1.c.project.internal by the GCE metadata service
        nothing
        Gce win-1.c.project.internal by the config
        OpenShift - by the config
        ");
    }

    #[test]
    fn b28_a_look_alike_of_another_cloud_is_not_ec2_and_imds_v2_alone_is_enough() {
        // OpenStack has EC2's paths without the tokens of IMDSv2.
        assert_eq!(found(&[], None, Some((Flavour::OpenStack, "win-1.novalocal")), None), None);
        // An instance without a name in its metadata is still on EC2.
        assert_eq!(
            told(found(&[], None, Some((Flavour::Ec2, "")), None)),
            "Ec2 - by the EC2 instance metadata service"
        );
    }

    #[test]
    fn a_web_page_on_the_metadata_address_is_not_a_cloud() {
        assert_eq!(found(&[], None, Some((Flavour::CaptivePortal, "x")), None), None);
    }
}
