package gitdoor

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/crypto/ssh"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

// Repositories that only an ssh key opens. Git in a sandbox asks for them by http, as for others, and the door runs git's program at the
// host by ssh, once for each request. Over ssh, the host begins every connection with its references. The door removes them from answers
// to requests for something else. All other bytes are the same in both protocols.

const (
	// handshakeTimeout limits the connection to a host and its logging in.
	handshakeTimeout = 30 * time.Second
	// mostInflated limits a request, in bytes, after it is unpacked.
	mostInflated = 8 << 30
	// mostSaid limits what is shown of what a host says when it refuses, in bytes.
	mostSaid = 1000
)

// hostKeys are the keys that well-known hosts publish, as fingerprints, in addition to those of credentials.
var hostKeys = map[string][]string{
	// https://docs.github.com/en/authentication/keeping-your-account-and-data-secure/githubs-ssh-key-fingerprints
	"github.com": {"SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU", "SHA256:p2QAMXNIC1TJYWeIOttrVc98/R1BUFWu3/LiyKgUfQM", "SHA256:uNiVztksCsDhcc0u9e8BujQXVUpKZIDTMczCvj3tD2s"},
}

// isKey reports whether a credential is a private key, with which hosts are asked by ssh.
func (c Credential) isKey() bool { return strings.Contains(c.Password, "PRIVATE KEY-----") }

// overSSH is a request of git, as it is asked by ssh.
type overSSH struct {
	service string // the program at the host
	path    string
	lists   bool // it asks for the references
	v2      bool // in version 2 of git's protocol
}

// overSSHOf converts a request for a target that targetOf returned.
func overSSHOf(r *http.Request, target *url.URL) (overSSH, error) {
	o := overSSH{service: target.Query().Get("service"), lists: r.Method == http.MethodGet, v2: strings.Contains(r.Header.Get("Git-Protocol"), "version=2")}
	if !o.lists {
		o.service = target.Path[strings.LastIndex(target.Path, "/")+1:]
	}
	repo, found := strings.CutSuffix(target.Path, "/"+o.service)
	if o.lists {
		repo, found = strings.CutSuffix(target.Path, "/info/refs")
	}
	if !found || o.service != "git-upload-pack" && o.service != "git-receive-pack" {
		return o, notGit()
	}
	o.path = strings.TrimPrefix(repo, "/")
	if rest, root := strings.CutPrefix(o.path, sandbox.GitRoot); root {
		o.path = "/" + rest
	}
	if strings.HasPrefix(o.path, "-") {
		return o, fault.New(fault.Invalid, "the path of a repository cannot begin with -", "use another one")
	}
	o.v2 = o.v2 && o.service == "git-upload-pack"
	return o, nil
}

// passSSH asks a host by ssh, and answers as an http server of git does. If it returns an error, it has answered nothing.
func (d *Door) passSSH(ctx context.Context, w http.ResponseWriter, r *http.Request, host string, target *url.URL, c Credential) error {
	ask, err := overSSHOf(r, target)
	if err != nil {
		return err
	}
	body, err := bodyOf(r)
	if err != nil {
		return err
	}
	client, err := d.logIn(ctx, host, c)
	if err != nil {
		return err
	}
	defer client.Close()
	defer context.AfterFunc(ctx, func() { client.Close() })()
	// A host that never begins its answer is not waited for.
	late := time.AfterFunc(answerTimeout, func() { client.Close() })
	defer late.Stop()
	git, err := start(client, ask)
	if err != nil {
		return unreachable(host, "ssh", err)
	}
	references, v2, err := git.references()
	if err != nil {
		return git.refusal(host)
	}
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	if ask.lists {
		h.Set("Content-Type", "application/x-"+ask.service+"-advertisement")
		late.Stop()
		to := flushing{w, http.NewResponseController(w)}
		if !v2 {
			_, _ = io.WriteString(to, packet("# service="+ask.service+"\n")+"0000")
		}
		_, _ = io.Copy(to, references) // git notices an incomplete answer
		_, _ = io.WriteString(git.input, "0000")
		git.input.Close()
		return nil
	}
	if _, err := io.Copy(io.Discard, references); err != nil {
		return git.refusal(host)
	}
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // HTTP/2 needs none
	go func() {                    // ends with the connection, or with the body, which ends with the handler
		_, _ = io.Copy(git.input, body) // the host notices an incomplete request
		git.input.Close()
	}()
	if _, err := git.output.Peek(1); err != nil {
		if failed := git.wait(); failed != nil {
			return git.refusal(host)
		}
	}
	late.Stop()
	h.Set("Content-Type", "application/x-"+ask.service+"-result")
	w.WriteHeader(http.StatusOK)
	_, _ = io.Copy(flushing{w, control}, git.output) // git notices an incomplete answer
	return nil
}

// bodyOf returns the body of a request, unpacked.
func bodyOf(r *http.Request) (io.Reader, error) {
	switch r.Header.Get("Content-Encoding") {
	case "":
		return r.Body, nil
	case "gzip", "x-gzip":
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, fault.New(fault.Invalid, "the request is not what it says it is: it cannot be unpacked", "use git").Because(err)
		}
		return io.LimitReader(unpacked, mostInflated), nil
	}
	return nil, fault.New(fault.Invalid, "the request is packed in an unknown way", "use git")
}

// logIn connects to a host, whose key it checks, and logs in with a credential's key.
func (d *Door) logIn(ctx context.Context, host string, c Credential) (*ssh.Client, error) {
	signer, err := ssh.ParsePrivateKey([]byte(c.Password))
	if err != nil {
		next := "set the secret to a whole private key, as ssh-keygen writes it"
		if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
			next = "make a key without a passphrase for arbe: ssh-keygen -t ed25519 -N ''"
		}
		// The cause may quote the key.
		return nil, fault.Newf(fault.Precondition, next, "the secret for repositories at %s is not a private key that can be used", host)
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, "22"
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn, err := d.config.Dial(ctx, "tcp", net.JoinHostPort(name, port))
	if err != nil {
		return nil, unreachable(host, "ssh", err)
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	user := cmp.Or(c.User, sandbox.DefaultSSHUser)
	known := slices.Concat(c.HostKeys, hostKeys[host])
	var shown string
	config := &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, ClientVersion: "SSH-2.0-arbe",
		// The order in which hosts publish their keys, without certificates, which nobody here checks.
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if shown = ssh.FingerprintSHA256(key); slices.Contains(known, shown) {
				return nil
			}
			return errHostKey
		},
	}
	made, channels, requests, err := ssh.NewClientConn(conn, net.JoinHostPort(name, port), config)
	switch {
	case err == nil && ctx.Err() == nil:
		return ssh.NewClient(made, channels, requests), nil
	case err == nil:
		made.Close()
		err = ctx.Err()
	default:
		conn.Close()
	}
	switch {
	case shown != "" && !slices.Contains(known, shown) && len(known) == 0:
		return nil, fault.Newf(fault.Precondition, "compare that with what the host publishes, and add it to git in: arbe env edit (host_keys)", "%s is not known: it shows the host key %s", host, shown)
	case shown != "" && !slices.Contains(known, shown):
		return nil, fault.Newf(fault.Forbidden, "find out why before you change git in: arbe env edit (host_keys)", "%s shows the host key %s, which is not one that the environment knows: it may be another host", host, shown)
	case ctx.Err() == nil && strings.Contains(err.Error(), "unable to authenticate"):
		return nil, fault.Newf(fault.Forbidden, "add its public part to the repository, or to an account there", "%s refuses the key of this environment for the user %s: %s", host, user, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))))
	}
	return nil, unreachable(host, "ssh", err)
}

var errHostKey = errors.New("the host key is not known")

// version2 is the first line of an answer in version 2 of git's protocol.
const version2 = "000eversion 2\n"

// program is git's program at a host.
type program struct {
	session *ssh.Session
	// wait returns how the program ended. It keeps the result, because a session's second Wait would never return.
	wait   func() error
	input  io.WriteCloser
	output *bufio.Reader
	said   *said
}

func start(client *ssh.Client, ask overSSH) (*program, error) {
	session, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	p := &program{session: session, wait: sync.OnceValue(session.Wait), said: &said{}}
	session.Stderr = p.said
	if p.input, err = session.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := session.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.output = bufio.NewReaderSize(output, 64<<10)
	if ask.v2 {
		_ = session.Setenv("GIT_PROTOCOL", "version=2") // a host that refuses it answers in version 0
	}
	return p, session.Start(ask.service + " '" + ask.path + "'") // the path has no quotes; see repositoryPath
}

// references returns what the program says first: the references of the repository or, in version 2, what it can do.
func (p *program) references() (_ io.Reader, v2 bool, err error) {
	first, err := p.output.Peek(4)
	if err == nil {
		_, err = packetLength(first)
	}
	if err == nil && string(first) == version2[:4] {
		first, err = p.output.Peek(len(version2))
	}
	return &untilFlush{from: p.output}, string(first) == version2, err
}

// refusal is the error for a program that does not answer.
func (p *program) refusal(host string) error {
	p.session.Close()
	_ = p.wait() // what it said is why
	text := p.said.String()
	if text == "" {
		text = "it says nothing"
	}
	return fault.Newf(fault.Precondition, "check the repository's address, and that the key may use it", "%s does not answer: %s", host, text)
}

// packet returns a line of git's protocol.
func packet(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

// packetLength returns how many bytes a line has that begins with head, its length included; 0 to 2 mark ends.
func packetLength(head []byte) (int, error) {
	n, err := strconv.ParseUint(string(head[:4]), 16, 16)
	if err != nil || n == 3 {
		return 0, errors.New("the answer is not git's")
	}
	return int(n), nil
}

// untilFlush reads lines of git's protocol up to the one that ends them, and that one.
type untilFlush struct {
	from *bufio.Reader
	left int // of the line that is being read
	end  bool
}

func (u *untilFlush) Read(b []byte) (int, error) {
	if u.left == 0 {
		if u.end {
			return 0, io.EOF
		}
		head, err := u.from.Peek(4)
		if err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		n, err := packetLength(head)
		if err != nil {
			return 0, err
		}
		u.left, u.end = max(n, 4), n == 0
	}
	n, err := u.from.Read(b[:min(len(b), u.left)])
	u.left -= n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// said keeps the beginning of what a program says to people.
type said struct{ text bytes.Buffer }

func (s *said) Write(b []byte) (int, error) {
	s.text.Write(b[:min(len(b), mostSaid-min(mostSaid, s.text.Len()))])
	return len(b), nil
}

// String returns it as one line. It may be anything.
func (s *said) String() string {
	clean := strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s.text.String())
	return strings.Join(strings.Fields(clean), " ")
}
