package gitdoor_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/arbe-dev/arbe/internal/gitdoor"
)

// sshHost is a host of repositories that is reached by ssh only. It runs git itself.
type sshHost struct {
	address, home string
	signer        ssh.Signer
	client        ssh.PublicKey // the one that may log in
	// old refuses the variable with the version of git's protocol.
	old bool
	// instead, if set, answers instead of git.
	instead func(ssh.Channel)
	// tried is how many keys clients have shown, and asked what they have run.
	tried atomic.Int64
	mu    sync.Mutex
	asked []string
}

// newKey returns a key, and its private part as ssh-keygen writes it.
func newKey(t *testing.T, passphrase string) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	must(t, err)
	return signer, string(pem.EncodeToMemory(block))
}

func newSSHHost(t *testing.T) *sshHost {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	h := &sshHost{address: listener.Addr().String(), home: t.TempDir()}
	h.signer, _ = newKey(t, "")
	var all sync.WaitGroup
	t.Cleanup(func() { listener.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { h.serve(conn) })
		}
	})
	return h
}

func (h *sshHost) serve(conn net.Conn) {
	defer conn.Close()
	config := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		h.tried.Add(1)
		if c.User() != "git" || string(key.Marshal()) != string(h.client.Marshal()) {
			return nil, os.ErrPermission
		}
		return nil, nil
	}}
	config.AddHostKey(h.signer)
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	defer server.Close()
	go ssh.DiscardRequests(requests)
	for made := range channels {
		channel, requests, err := made.Accept()
		if err != nil {
			return
		}
		go h.session(channel, requests)
	}
}

// session runs the one command of a session.
func (h *sshHost) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	env := append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	for r := range requests {
		switch r.Type {
		case "env":
			var v struct{ Name, Value string }
			ok := ssh.Unmarshal(r.Payload, &v) == nil && !h.old
			if ok {
				env = append(env, v.Name+"="+v.Value)
			}
			_ = r.Reply(ok, nil)
		case "exec":
			var v struct{ Command string }
			_ = ssh.Unmarshal(r.Payload, &v)
			_ = r.Reply(true, nil)
			h.mu.Lock()
			h.asked = append(h.asked, v.Command)
			h.mu.Unlock()
			if h.instead != nil {
				h.instead(channel)
				ssh.DiscardRequests(requests) // ends when the client leaves
				return
			}
			code := h.run(channel, v.Command, env)
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
			return
		default:
			_ = r.Reply(false, nil)
		}
	}
}

func (h *sshHost) run(channel ssh.Channel, line string, env []string) int {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = h.home, env, channel, channel.Stderr()
	input, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return 1
	}
	go func() { _, _ = io.Copy(input, channel); input.Close() }()
	_ = cmd.Wait() // its code says how it ended
	return cmd.ProcessState.ExitCode()
}

// ran returns what clients have run.
func (h *sshHost) ran() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.asked)
}

// door serves the door, with a credential for the host, and returns its address for the host's repositories.
func (h *sshHost) door(t *testing.T, c gitdoor.Credential) string {
	t.Helper()
	d := newDoor(c)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.Serve(w, r, "house", "environment") }))
	t.Cleanup(server.Close)
	return server.URL + "/git/" + h.address + "/"
}

// newDoor returns a door with a credential for every host.
func newDoor(c gitdoor.Credential) *gitdoor.Door {
	return gitdoor.New(gitdoor.Config{
		Credential: func(context.Context, string, string, string) (gitdoor.Credential, error) { return c, nil },
		Dial:       new(net.Dialer).DialContext, Logger: slog.New(slog.DiscardHandler),
	})
}

// opened is a host with a repository, and the credential that opens it.
func opened(t *testing.T) (*sshHost, gitdoor.Credential) {
	t.Helper()
	h := newSSHHost(t)
	signer, key := newKey(t, "")
	h.client = signer.PublicKey()
	run(t, h.home, "git init -q --bare -b main repo.git && git clone -q repo.git work 2>/dev/null && cd work && echo one >file && git add . && "+commit+" -m first && "+
		"echo two >file && "+commit+" -am second && git push -q origin main && git tag v1 && git push -q origin v1")
	return h, gitdoor.Credential{Password: key, HostKeys: []string{ssh.FingerprintSHA256(h.signer.PublicKey())}}
}

const commit = "git -c user.name=Ada -c user.email=ada@example.com commit -q"

// try runs a line of shell, and returns what it prints.
func try(t *testing.T, dir, line string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-ec", line)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func run(t *testing.T, dir, line string) string {
	t.Helper()
	out, err := try(t, dir, line)
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestGitReachesAHostBySSH(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"in version 2 of its protocol": false, "at a host that knows version 0 only": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, c := opened(t)
			h.old = old
			door, dir := h.door(t, c), t.TempDir()
			if got := run(t, dir, "git clone -q "+door+"repo.git all && cat all/file && git -C all rev-list --count HEAD"); got != "two\n2\n" {
				t.Errorf("a clone has %q", got)
			}
			if got := run(t, dir, "git clone -q --depth 1 "+door+"@root"+h.home+"/repo.git one && git -C one rev-list --count HEAD && git -C one fetch -q --unshallow && git -C one rev-list --count HEAD"); got != "1\n2\n" {
				t.Errorf("a shallow clone has %q commits", got)
			}
			// More history than one request can negotiate, and more data than any buffer has.
			run(t, h.home, "cd work && for i in $(seq 60); do echo $i >file; "+commit+" -am $i; done && head -c 3000000 /dev/urandom >large && git add . && "+commit+" -m large && git push -q origin main")
			run(t, dir, "cd all && for i in $(seq 40); do "+commit+" --allow-empty -m own$i; done && git fetch -q && git checkout -q -b theirs origin/main && cmp large "+h.home+"/work/large")
			got := run(t, dir, "cd all && head -c 3000000 /dev/urandom >mine && git add mine && "+commit+" -m mine && git push -q origin HEAD:main && git -C "+h.home+"/repo.git log -1 --format=%s main")
			if got != "mine\n" {
				t.Errorf("after a push the host has %q", got)
			}
			if out, err := try(t, dir, "cd one && "+commit+" --allow-empty -m behind && git push origin HEAD:main"); err == nil || !strings.Contains(out, "rejected") {
				t.Errorf("a push that is behind: %v: %s", err, out)
			}
			run(t, dir, "cd all && git push -q origin :v1 && test -z \"$(git ls-remote --tags origin)\"")
		})
	}
}

func TestAHostIsKnownByItsKey(t *testing.T) {
	t.Parallel()
	h, c := opened(t)
	shown := c.HostKeys[0]
	other, _ := newKey(t, "")
	for name, of := range map[string]struct {
		keys []string
		want string
	}{
		"nobody has said which it is": {nil, "is not known: it shows the host key " + shown},
		"it is another one":           {[]string{ssh.FingerprintSHA256(other.PublicKey())}, "shows the host key " + shown + ", which is not one that the environment knows"},
	} {
		c.HostKeys = of.keys
		if out, err := ask(t, h.door(t, c)+"repo.git"); err != nil || !strings.Contains(out, of.want) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	if h.tried.Load() != 0 {
		t.Error("the host was shown the key")
	}
}

// ask asks the door for the references of a repository, and returns the answer.
func ask(t *testing.T, repo string) (string, error) {
	t.Helper()
	return send(t, http.MethodGet, repo+"/info/refs?service=git-upload-pack", nil)
}

func send(t *testing.T, method, address string, body io.Reader) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, body)
	must(t, err)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

func TestWhatAHostRefusesIsSaid(t *testing.T) {
	t.Parallel()
	h, c := opened(t)
	stranger, wrong := newKey(t, "")
	_, locked := newKey(t, "secret")
	for name, of := range map[string]struct{ key, path, want string }{
		"another key":             {wrong, "repo.git", "refuses the key of this environment for the user git: " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(stranger.PublicKey())))},
		"a key with a passphrase": {locked, "repo.git", "make a key without a passphrase"},
		"no key":                  {"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", "repo.git", "is not a private key that can be used"},
		"another repository":      {c.Password, "none.git", "does not answer: fatal: 'none.git' does not appear to be a git repository"},
	} {
		bad := c
		bad.Password = of.key
		out, err := ask(t, h.door(t, bad)+of.path)
		if err != nil || !strings.Contains(out, of.want) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if strings.Contains(out, "PRIVATE KEY") || strings.Contains(out, strings.Split(of.key, "\n")[1]) {
			t.Errorf("%s: the answer has the key: %s", name, out)
		}
	}
}

// TestARequestThatIsNotAnsweredEnds: what a request takes up is free again, also if the host says nothing or the client leaves.
func TestARequestThatIsNotAnsweredEnds(t *testing.T) {
	t.Parallel()
	const requests = 40 // more than a house may make at a time
	t.Run("the host ends without an answer", func(t *testing.T) {
		t.Parallel()
		h, c := opened(t)
		door := h.door(t, c)
		for range requests {
			if out, err := send(t, http.MethodPost, door+"repo.git/git-upload-pack", strings.NewReader("zzzz")); err != nil || !strings.Contains(out, "does not answer: fatal:") {
				t.Fatalf("it answers %q (%v)", out, err)
			}
		}
		if out, err := ask(t, door+"repo.git"); err != nil || !strings.Contains(out, "git-upload-pack") {
			t.Errorf("a later request: %v: %s", err, out)
		}
	})
	t.Run("the client leaves before the answer", func(t *testing.T) {
		t.Parallel()
		h := newSSHHost(t)
		signer, key := newKey(t, "")
		h.client = signer.PublicKey()
		asked := make(chan struct{})
		h.instead = func(channel ssh.Channel) {
			_, _ = io.WriteString(channel, "0000") // no references
			if _, err := io.ReadFull(channel, make([]byte, 4)); err == nil {
				asked <- struct{}{}
			}
		}
		d := newDoor(gitdoor.Credential{Password: key, HostKeys: []string{ssh.FingerprintSHA256(h.signer.PublicKey())}})
		for range requests {
			ctx, leave := context.WithCancel(t.Context())
			var left sync.WaitGroup
			left.Go(func() { <-asked; leave() })
			w := httptest.NewRecorder()
			d.Serve(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/git/"+h.address+"/repo.git/git-upload-pack", strings.NewReader("want")), "house", "environment")
			if out := w.Body.String(); !strings.Contains(out, "does not answer") {
				t.Fatalf("it answers %q", out)
			}
			left.Wait()
		}
	})
}

// TestARequestRunsGitAndNothingElse: what a sandbox asks for becomes a line of shell at the host.
func TestARequestRunsGitAndNothingElse(t *testing.T) {
	t.Parallel()
	h, c := opened(t)
	door := h.door(t, c)
	for _, path := range []string{"-upload-pack=x", "a'b", "a%27b", "$(touch%20x)", "a;b", "a%0ab", "../x", "a//b", "a b"} {
		for _, ends := range []string{"/info/refs?service=git-upload-pack", "/info/refs?service=git-receive-pack"} {
			_, _ = send(t, http.MethodGet, door+strings.ReplaceAll(path, " ", "%20")+ends, nil)
		}
	}
	for method, path := range map[string]string{
		http.MethodGet: "repo.git/info/refs?service=git-upload-archive", http.MethodPost: "repo.git/git-upload-archive", http.MethodPut: "repo.git/git-upload-pack",
	} {
		if out, err := send(t, method, door+path, strings.NewReader("{}")); err != nil || !strings.HasPrefix(out, "arbe: ") {
			t.Errorf("%s %s: %v: %s", method, path, err, out)
		}
	}
	if ran := h.ran(); len(ran) != 0 {
		t.Errorf("the host ran %q", ran)
	}
	if _, err := os.Stat(filepath.Join(h.home, "x")); err == nil {
		t.Error("the host ran what the path says")
	}
	if _, err := ask(t, door+"repo.git"); err != nil {
		t.Error(err)
	}
	if ran, want := h.ran(), []string{"git-upload-pack 'repo.git'"}; !slices.Equal(ran, want) {
		t.Errorf("the host ran %q, want %q", ran, want)
	}
}
