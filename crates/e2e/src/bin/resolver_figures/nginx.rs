//! The other one that we are compared with.

use crate::{
    process::{Core, command, listens},
    stage::Stage,
};
use anyhow::Result;
use elasti_e2e::{Running, Usage};
use std::{env, fs, path::PathBuf, process};

pub(crate) const HTTP: u16 = 18_201;
pub(crate) const OPAQUE: u16 = 18_202;
pub(crate) const HTTP2: u16 = 18_203;
/// Where Debian puts it, which is not on everybody's PATH.
const PROGRAM: &str = "/usr/sbin/nginx";
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

pub(crate) struct Nginx {
    running: Running,
    folder: PathBuf,
}

// === impl Nginx ===

impl Nginx {
    /// In one process, keeping connections on both sides. It does not speak HTTP/2 to targets.
    pub(crate) async fn start(stage: &Stage<'_>, core: Core) -> Result<Self> {
        let folder = env::temp_dir().join(format!("elasti-figures-nginx-{}", process::id()));
        fs::create_dir_all(&folder)?;
        let config = folder.join("nginx.conf");
        fs::write(&config, configuration(stage))?;
        let mut command = command(stage.cluster, PROGRAM, core)?;
        command.arg("-p").arg(&folder).arg("-c").arg(&config);
        let running = Running::start(&mut command)?;
        listens("nginx", OPAQUE).await?;
        Ok(Self { running, folder })
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.running.id())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn configuration(stage: &Stage<'_>) -> String {
    let target = stage.target;
    format!(
        "load_module {STREAM_MODULE};
daemon off;
master_process off;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 4000; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  keepalive_requests 1000000000;
  upstream target {{ server {target}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{HTTP};
    listen 127.0.0.1:{HTTP2} http2;
    location / {{
      proxy_pass http://target;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_max_temp_file_size 0;
    }}
  }}
}}
stream {{
  server {{ listen 127.0.0.1:{OPAQUE}; proxy_pass {target}; }}
}}
"
    )
}
