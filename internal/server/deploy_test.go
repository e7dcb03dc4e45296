package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/httpd/httpdtest"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// deploy is the directory with the files for operators.
const deploy = "../../docs/deploy/"

// frontProxy is a reverse proxy with TLS that runs with the configuration of docs/deploy.
type frontProxy struct {
	url    string
	client *http.Client
}

// frontProxies start the proxies with the configuration in docs/deploy, changing only the name, the certificate and the
// addresses.
var frontProxies = map[string]func(t *testing.T, dir, addr, upstream string) *exec.Cmd{
	"nginx": func(t *testing.T, dir, addr, upstream string) *exec.Cmd {
		site := read(t, deploy+"nginx.conf")
		site = replace(t, site, "listen 443 ssl http2", "listen "+addr+" ssl http2")
		site = replace(t, site, "/etc/letsencrypt/live/arbe.example.com/fullchain.pem", dir+"/cert.pem")
		site = replace(t, site, "/etc/letsencrypt/live/arbe.example.com/privkey.pem", dir+"/key.pem")
		site = replace(t, site, "127.0.0.1:8420", upstream)
		write := fmt.Sprintf("daemon off; pid %[1]s/pid; error_log stderr; events {} http { access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;\n%[2]s\n}", dir, site)
		save(t, dir+"/nginx.conf", write)
		return exec.Command("nginx", "-p", dir, "-e", "stderr", "-c", dir+"/nginx.conf")
	},
	"caddy": func(t *testing.T, dir, addr, upstream string) *exec.Cmd {
		site := read(t, deploy+"Caddyfile")
		site = replace(t, site, "arbe.example.com {", fmt.Sprintf("https://%s {\n\ttls %[2]s/cert.pem %[2]s/key.pem", addr, dir))
		site = replace(t, site, "127.0.0.1:8420", upstream)
		save(t, dir+"/Caddyfile", "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"+site)
		cmd := exec.Command("caddy", "run", "--config", dir+"/Caddyfile", "--adapter", "caddyfile")
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
		return cmd
	},
}

// Through a proxy with the configuration of docs/deploy, messages reach followers immediately, however they follow.
func TestProxiesPassStreamsOnAtOnce(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	start(t, cfg)
	direct := client(t, cfg)
	for name, command := range frontProxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(name); err != nil {
				t.Skip(name + " is not installed (apt-get install nginx-light caddy)")
			}
			front := startProxy(t, command, strings.TrimPrefix(login(t, cfg).Host, "http://"))
			thread, token := newThread(t, direct), login(t, cfg).Token
			stream := front.url + door.Prefixes[0] + "arbe-thread-" + thread
			t.Run("an event stream", func(t *testing.T) {
				body := front.follow(t, stream+"?offset=now&live=sse", token)
				awaitLine(t, body, "control") // the stream is open
				say(t, direct, thread, "through the event stream")
				awaitLine(t, body, "through the event stream")
			})
			t.Run("a long-poll", func(t *testing.T) {
				head := front.get(t, stream+"?offset=now", token)
				head.Body.Close()
				answered := make(chan string, 1)
				go func() {
					text, _ := io.ReadAll(front.follow(t, stream+"?live=long-poll&offset="+url.QueryEscape(head.Header.Get("Stream-Next-Offset")), token))
					answered <- string(text)
				}()
				say(t, direct, thread, "through the long-poll")
				if got := <-answered; !strings.Contains(got, "through the long-poll") {
					t.Errorf("it answers %q", got)
				}
			})
			t.Run("a tail of the services", func(t *testing.T) {
				c := arbe.New(front.url, token, arbe.WithHTTPClient(front.client))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				last := say(t, direct, thread, "before the tail").Seq
				for event, err := range c.Tail(ctx, thread, last-1) {
					if err != nil {
						t.Fatal(err)
					}
					e := event.GetEntry()
					if e.GetSeq() == last { // earlier entries come first; only then is the tail live
						say(t, direct, thread, "through the tail")
					} else if strings.Contains(e.GetPayload(), "through the tail") {
						return
					}
				}
			})
			t.Run("a file larger than proxies like", func(t *testing.T) {
				c := arbe.New(front.url, token, arbe.WithHTTPClient(front.client))
				if _, err := c.PutArtifact(t.Context(), &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: thread}, Label: "large"}, bytes.NewReader(make([]byte, 3<<20))); err != nil {
					t.Error(err)
				}
			})
			t.Run("a WebSocket", func(t *testing.T) {
				header := http.Header{"Authorization": {"Bearer " + token}}
				dialer := websocket.Dialer{TLSClientConfig: front.client.Transport.(*http.Transport).TLSClientConfig}
				_, res, err := dialer.DialContext(t.Context(), "wss"+strings.TrimPrefix(front.url, "https")+arbe.PortPath+thread+"/3000", header)
				if res == nil {
					t.Fatal(err)
				}
				// The thread has no sandbox. Without the upgrade, the server would say that it needs a WebSocket.
				if text, _ := io.ReadAll(res.Body); !strings.Contains(string(text), "NO_SANDBOX") {
					t.Errorf("it answers %s: %s", res.Status, text)
				}
			})
			t.Run("a form of a page, whose origin is the proxy", func(t *testing.T) {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, front.url+"/login", strings.NewReader("token=nothing"))
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				req.Header.Set("Origin", front.url)
				res, err := front.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if res.StatusCode == http.StatusForbidden || res.StatusCode >= 500 {
					t.Errorf("it answers %s", res.Status)
				}
			})
		})
	}
}

// startProxy starts a proxy in front of an address, and returns once it answers.
func startProxy(t *testing.T, command func(t *testing.T, dir, addr, upstream string) *exec.Cmd, upstream string) *frontProxy {
	t.Helper()
	dir := t.TempDir()
	addr := httpdtest.Address(t, "127.0.0.1")
	roots := certificate(t, dir)
	cmd := command(t, dir, addr, upstream)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		deadline := time.AfterFunc(20*time.Second, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer deadline.Stop()
		<-ended
		if t.Failed() {
			t.Log(said.String())
		}
	})
	p := &frontProxy{"https://" + addr, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}}
	for until := time.Now().Add(time.Minute); ; {
		res, err := p.client.Get(p.url + "/healthz")
		if err == nil {
			res.Body.Close()
			return p
		}
		select {
		case <-ended:
			t.Fatalf("it ended: %s", said.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(until) {
			t.Fatalf("it does not answer (%v): %s", err, said.String())
		}
	}
}

func (p *frontProxy) get(t *testing.T, address, token string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Error(err)
		return &http.Response{Body: http.NoBody}
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := p.client.Do(req)
	if err != nil || res.StatusCode >= 400 {
		t.Errorf("%s answers %v (%v)", address, res, err)
		return &http.Response{Body: http.NoBody}
	}
	return res
}

// follow returns the body of an answer as it arrives.
func (p *frontProxy) follow(t *testing.T, address, token string) io.Reader {
	t.Helper()
	return p.get(t, address, token).Body
}

// awaitLine reads until a text arrives. A proxy that buffers short pieces would never deliver it.
func awaitLine(t *testing.T, r io.Reader, text string) {
	t.Helper()
	var got []byte
	for buffer := make([]byte, 4096); !bytes.Contains(got, []byte(text)); {
		n, err := r.Read(buffer)
		got = append(got, buffer[:n]...)
		if err != nil && !bytes.Contains(got, []byte(text)) {
			t.Fatalf("%q does not come (%v), but %q", text, err, got)
		}
	}
}

// certificate writes a certificate for this machine into a directory, and returns a pool that trusts it.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	save(t, filepath.Join(dir, "cert.pem"), string(text))
	save(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

func TestTheUnitIsOneOfSystemd(t *testing.T) {
	t.Parallel()
	unit := read(t, deploy+"arbe.service")
	// These settings would give the service its own mount namespace, in which the next server would not find the mounts of
	// the running sandboxes.
	if found := regexp.MustCompile(`(?m)^(Private|Protect|ReadOnly|ReadWrite|Inaccessible|Bind|Root|RuntimeDirectory|TemporaryFileSystem|DynamicUser).*`).FindString(unit); found != "" {
		t.Errorf("it has %s", found)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	file := filepath.Join(t.TempDir(), "arbe.service")
	save(t, file, replace(t, unit, "/usr/local/bin/arbe", "/bin/true"))
	if said, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", file).CombinedOutput(); err != nil || len(bytes.TrimSpace(said)) > 0 {
		t.Errorf("systemd-analyze says %s (%v)", said, err)
	}
}

// Every setting that the files for operators set exists.
func TestDeployedSettingsExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, s := range server.Settings {
		known[s.Env] = true
	}
	files, err := filepath.Glob(deploy + "*")
	if err != nil || len(files) < 4 {
		t.Fatalf("there are %v (%v)", files, err)
	}
	for _, file := range files {
		for _, name := range regexp.MustCompile(`\bARBE_[A-Z_]+`).FindAllString(read(t, file), -1) {
			if !known[name] {
				t.Errorf("%s sets %s, which is no setting", filepath.Base(file), name)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func save(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace replaces a part of a text, and fails the test if the text lacks that part.
func replace(t *testing.T, text, old, by string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("there is no %q in it", old)
	}
	return strings.ReplaceAll(text, old, by)
}
