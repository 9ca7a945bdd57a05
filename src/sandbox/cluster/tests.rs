use super::*;
#[test]
fn by_hand() {
    let dir = std::path::PathBuf::from("/tmp/hand");
    let t = std::time::Instant::now();
    let c = EmbeddedCluster::start(&dir, &Seed::new("win-1"), &[]).unwrap();
    println!("first start {:?}", t.elapsed());
    drop(c);
    let t = std::time::Instant::now();
    let c = EmbeddedCluster::start(&dir, &Seed::new("win-1"), &[]).unwrap();
    println!("start {:?}", t.elapsed());
    std::fs::write(dir.join("kc"), c.admin_kubeconfig_direct()).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(200));
}
