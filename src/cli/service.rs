//! `service start|stop|restart|status`, and the hidden `service run`.

use anyhow::Result;

use super::args::Service;
use super::components::Component;
use super::documents::Services;
use crate::fault::Exit;
use crate::report::document::ServiceStatus;
use crate::run::app::App;
use crate::run::{Ending, guard, service_run, service_status, services, verb};

pub(crate) fn run(service: &Service, app: &mut App) -> Result<Ending> {
    match service {
        Service::Status => show(app),
        Service::Run { component, foreground } => match component {
            Component::Service(role) => service_run::serve(*role, *foreground, app),
            Component::Guard => guard::run(app),
            Component::Session0 => service_run::start_in_session0(),
        },
        Service::Start => services::run(&verb::START, app),
        Service::Stop => services::run(&verb::STOP, app),
        Service::Restart => services::run(&verb::RESTART, app),
    }
}

fn show(app: &mut App) -> Result<Ending> {
    let node = app.node()?;
    let services = service_status::our_services(&*node)?;
    let line = |service: &ServiceStatus| {
        let why = service.failure.as_ref().map_or_else(String::new, |why| format!("\n  {why}"));
        let line = format!("{:<12} {:<8} {}", service.name, service.state, service_status::row(service));
        format!("{}{why}", line.trim_end())
    };
    let text: Vec<String> = services.iter().map(line).collect();
    let down = services.iter().any(|service| service.state == "Stopped" || service.crash_loop);
    app.reporter.document(&Services { services }, &text.join("\n"));
    if down {
        Ending::shown(Exit::Unhealthy, "a service is stopped, or its component crashes")
    } else {
        Ending::shown(Exit::Ok, "done")
    }
}
