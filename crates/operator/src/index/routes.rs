//! Which resolver port stands for which port of which service.

use super::Index;
use crate::{
    facts::{Declared, Understood},
    settings::Routing,
};
use elasti_api::{ElastiService, ElastiServiceStatus, RoutedPort};
use elasti_runtime::watch::Key;
use jiff::Timestamp;
use std::{collections::BTreeSet, sync::Arc};

/// A port of a service, as one ElastiService speaks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    pub(crate) elasti_service: Key,
    service: Arc<str>,
    port: i32,
}

/// The resolver ports of one ElastiService.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    pub(crate) ports: Vec<RoutedPort>,
    /// Written down, and no longer needed.
    pub(crate) surplus: Vec<(Route, u16)>,
    /// Whether a port found no number of its own.
    pub(crate) full: bool,
}

impl Index {
    /// What is written down counts.
    pub(super) fn note_routes(&mut self, key: &Key, object: &ElastiService) {
        for (route, port) in written(key, object) {
            self.ports.hold(route, port);
        }
    }

    /// Gives every TCP port of the service a number of its own, as far as there are any.
    pub(crate) fn routes(&mut self, key: &Key, routing: &Routing, now: Timestamp) -> Routes {
        let Some(Declared::Understood(object)) = self.declared.get(key) else {
            return Routes::default();
        };
        let object = object.clone();
        let written = written(key, &object);
        let known = object.status.as_ref().map(|status| status.ports.clone());
        if object.metadata.deletion_timestamp.is_some() {
            return Routes {
                ports: known.unwrap_or_default(),
                surplus: written,
                full: false,
            };
        }
        let service = &object.spec.service;
        if self.rival_of(key, &object).is_some() || *routing == Routing::Host {
            return Routes {
                surplus: written,
                ..Routes::default()
            };
        }
        let Some(facts) = self.services.get(&key.beside(service)) else {
            return Routes {
                ports: known.unwrap_or_default(),
                ..Routes::default()
            };
        };
        let wanted: Vec<Route> = facts
            .tcp_ports()
            .map(|port| Route::new(key, service, port.port))
            .collect();
        let in_use = self.published_ports(&key.beside(service));
        let (kept, surplus) = written
            .into_iter()
            .partition(|(route, number)| *route.service == **service && in_use.contains(number));
        let mut routes = Routes {
            surplus,
            ..Routes::default()
        };
        for route in wanted {
            match self.ports.assign(&route, now) {
                Some(number) => {
                    routes
                        .surplus
                        .retain(|written| *written != (route.clone(), number));
                    routes.ports.push(RoutedPort {
                        port: route.port,
                        resolver_port: number.into(),
                    });
                }
                None => routes.full = true,
            }
        }
        routes.keep(kept);
        routes
    }

    /// Where our slices send the service's traffic now.
    fn published_ports(&self, service: &Key) -> BTreeSet<u16> {
        let slices = self.slices_of(service).filter(|(_, slice)| slice.ours);
        let ports = slices.flat_map(|(_, slice)| &slice.ports);
        ports
            .filter_map(|(_, port)| (*port)?.try_into().ok())
            .collect()
    }

    /// Numbers that are no longer needed rest from now on.
    pub(crate) fn rest_ports(&mut self, surplus: &[(Route, u16)], now: Timestamp) {
        for (route, port) in surplus {
            if self.ports.of(route) == Some(*port) {
                self.ports.free(route, now);
            }
            self.forget_accepted(*port);
        }
    }

    /// Of an ElastiService that is gone.
    pub(super) fn free_routes(&mut self, key: &Key, now: Timestamp) {
        let Some(Declared::Understood(object)) = self.declared.get(key).cloned() else {
            return;
        };
        let service = &object.spec.service;
        let facts = self.services.get(&key.beside(service));
        let assigned = facts.into_iter().flat_map(|facts| facts.tcp_ports());
        let mut routes: Vec<Route> = assigned
            .map(|port| Route::new(key, service, port.port))
            .collect();
        routes.extend(written(key, &object).into_iter().map(|(route, _)| route));
        for route in routes {
            if let Some(port) = self.ports.of(&route) {
                self.ports.free(&route, now);
                self.forget_accepted(port);
            }
        }
    }

    fn forget_accepted(&mut self, port: u16) {
        for ports in self.accepted.values_mut() {
            ports.remove(&port);
        }
        self.refused.retain(|address, _| address.port() != port);
    }

    /// A new leader goes by what is written down, not by what it saw come and go.
    pub(crate) fn recount_routes(&mut self) {
        self.ports.forget_owners();
        let objects: Vec<(Key, Understood)> = self
            .understood()
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        for (key, object) in objects {
            self.note_routes(&key, &object);
        }
    }

    /// Whether a port of the resolvers stands for anything.
    pub(crate) fn is_routed(&self, port: u16) -> bool {
        self.ports.owner(port).is_some()
    }

    pub(crate) fn note_resting(&mut self, port: u16, since: Timestamp) {
        self.ports.rest(port, since);
    }
}

fn written(key: &Key, object: &ElastiService) -> Vec<(Route, u16)> {
    let Some(ElastiServiceStatus {
        ports, attached, ..
    }) = &object.status
    else {
        return Vec::new();
    };
    let service = attached
        .as_ref()
        .map_or(&object.spec.service, |attached| &attached.service);
    let route = |port: &RoutedPort| {
        let number = port.resolver_port.try_into().ok()?;
        Some((Route::new(key, service, port.port), number))
    };
    ports.iter().filter_map(route).collect()
}

// === impl Routes ===

impl Routes {
    /// Resolvers must listen for as long as a slice points there, though the service has another
    /// port by now.
    fn keep(&mut self, kept: Vec<(Route, u16)>) {
        for (route, number) in kept {
            if !self.ports.iter().any(|routed| routed.port == route.port) {
                self.ports.push(RoutedPort {
                    port: route.port,
                    resolver_port: number.into(),
                });
            }
        }
    }
}

// === impl Route ===

impl Route {
    fn new(key: &Key, service: &str, port: i32) -> Self {
        Self {
            elasti_service: key.clone(),
            service: service.into(),
            port,
        }
    }
}
