//! Real servers: the Debian packages `prometheus` and `victoria-metrics`, each on a port of its own
//! with a directory of its own, scraping itself each second.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

/// Ends on drop, and leaves nothing behind.
pub struct Server {
    pub port: u16,
    directory: TempDir,
    process: Option<Child>,
}

// === impl Server ===

impl Server {
    fn new() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        Self {
            port: free.local_addr().unwrap().port(),
            directory: TempDir::new().unwrap(),
            process: None,
        }
    }

    pub fn prometheus(prefix: &str) -> Self {
        let mut server = Self::new();
        server.write("web.yml", "");
        server.scrape(&format!("metrics_path: {prefix}/metrics"));
        server.start_prometheus(prefix);
        server
    }

    /// With a certificate that nobody knows, for the user `me` with the password `p@ss`.
    pub fn secured() -> Self {
        let mut server = Self::new();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".into()]).unwrap();
        server.write("cert.pem", &cert.pem());
        server.write("key.pem", &signing_key.serialize_pem());
        server.write(
            "web.yml",
            "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n\
             basic_auth_users: {me: $2b$04$abcdefghijklmnopqrstuux1xldIMZ95v8jSLOpqCBZ5kZ5M/8v4G}\n",
        );
        server.scrape(
            "scheme: https\n  tls_config: {insecure_skip_verify: true}\n  \
             basic_auth: {username: me, password: p@ss}",
        );
        server.start_prometheus("");
        server
    }

    pub fn victoria() -> Self {
        let mut server = Self::new();
        server.scrape("metrics_path: /metrics");
        let mut command = Command::new("victoria-metrics");
        command
            .arg(format!("-httpListenAddr=127.0.0.1:{}", server.port))
            .arg(format!("-promscrape.config={}", server.file("scrape.yml")))
            .arg(format!("-storageDataPath={}", server.file("data")))
            .arg("-search.latencyOffset=1s");
        server.start(command);
        server
    }

    pub fn start_prometheus(&mut self, prefix: &str) {
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--web.listen-address=127.0.0.1:{}", self.port))
            .arg(format!("--web.config.file={}", self.file("web.yml")))
            .arg(format!("--web.route-prefix={prefix}/"))
            .arg(format!("--config.file={}", self.file("scrape.yml")))
            .arg(format!("--storage.tsdb.path={}", self.file("data")));
        self.start(command);
    }

    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub fn certificate(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    fn scrape(&self, more: &str) {
        let target = format!("localhost:{}", self.port);
        let config = format!(
            "global: {{scrape_interval: 1s}}\n\
             scrape_configs:\n\
             - job_name: self\n  \
               static_configs: [{{targets: ['{target}'], labels: {{container: prometheus}}}}]\n  \
               {more}\n"
        );
        self.write("scrape.yml", &config);
    }

    fn start(&mut self, mut command: Command) {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn();
        let program = command.get_program().to_string_lossy().into_owned();
        self.process = Some(process.unwrap_or_else(|error| {
            panic!("{program}: {error}; the Debian package of that name has it")
        }));
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn file(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        path.to_string_lossy().into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
