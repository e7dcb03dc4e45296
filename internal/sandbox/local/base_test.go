//go:build linux

package local

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheHostsPasswordsAreNotInTheBase(t *testing.T) {
	t.Parallel()
	host, dir := t.TempDir(), filepath.Join(t.TempDir(), "base")
	const canary = "canary-0f9c"
	write := func(name, content string, mode fs.FileMode) {
		t.Helper()
		path := filepath.Join(host, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	secrets := []string{
		"etc/maven/settings.xml", "etc/maven/settings-security.xml", "etc/maven/toolchains.xml", "etc/shadow", "etc/passwd", "etc/environment",
		"etc/java-17-openjdk/management/jmxremote.password", "etc/java-17-openjdk/management/jmxremote.access", "etc/java-17-openjdk/security/keystore",
		"etc/perl/CPAN/Config.pm", "etc/perl/Net/libnet.cfg", "etc/bash.bashrc", "etc/profile", "etc/profile.d/proxy.sh", "etc/gitconfig", "etc/npmrc", "etc/pip.conf",
		"etc/python3.11/credentials", "etc/ssl/private/key.pem", "etc/ssl/openssl.cnf", "etc/pki/tls/private/key.pem", "etc/pki/tls/openssl.cnf",
		"etc/ca-certificates/update.d/hook", "etc/ssl/certs/private/key.pem", "etc/docker/daemon.json", "etc/apt/auth.conf", "etc/hosts", "etc/resolv.conf",
		"usr/etc/npmrc", "usr/local/etc/npmrc", "usr/local/cargo/credentials.toml", "usr/local/app/.env", "usr/src/.env", "usr/password", "usr/local/password",
		"root/.docker/config.json", "home/me/.netrc", "var/lib/x", "opt/app/.env", "run/secrets/x", "srv/x",
	}
	for _, name := range secrets {
		write(name, canary, 0o644)
	}
	write("etc/ssl/certs/both.pem", "-----BEGIN RSA PRIVATE KEY-----\n"+canary, 0o644)
	write("etc/ssl/certs/closed.pem", canary, 0o640)
	write("etc/ssl/certs/bundle.crt", "certificate", 0o644)
	write("etc/maven/m2.conf", "main is", 0o644)
	write("etc/java-17-openjdk/security/java.security", "security", 0o644)
	write("usr/bin/program", "program", 0o755)
	write("usr/local/bin/program", "program", 0o755)
	for link, target := range map[string]string{
		"etc/alternatives/editor": "/usr/bin/program", "etc/ssl/certs/linked.pem": "../private/key.pem", "bin": "usr/bin", "usr/local/lib": "/etc",
	} {
		write(link+".parent", "", 0o600)
		if err := os.Symlink(target, filepath.Join(host, link)); err != nil {
			t.Fatal(err)
		}
	}

	base, err := hostBase(host, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	look := func(top string) {
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			name, _ := filepath.Rel(top, path)
			shown[name] = true
			if e.Type() == fs.ModeSymlink {
				return nil
			}
			content, err := os.ReadFile(path)
			if strings.Contains(string(content), canary) {
				t.Errorf("the box sees %s", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	look(dir)
	for _, bound := range base.binds {
		if info, err := os.Lstat(filepath.Join(host, bound)); err != nil || !info.IsDir() {
			t.Errorf("%s is bound, and is no directory", bound)
		}
		look(filepath.Join(host, bound))
	}
	for _, name := range []string{
		"etc/ssl/certs/bundle.crt", "etc/ssl/certs/linked.pem", "etc/maven/m2.conf", "etc/java-17-openjdk/security/java.security",
		"etc/alternatives/editor", "bin", "usr/local/lib", "program", "etc/passwd",
	} {
		if !shown[name] {
			t.Errorf("the box does not see %s", name)
		}
	}
}
