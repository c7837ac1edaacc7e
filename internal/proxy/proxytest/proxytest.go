// Package proxytest runs proxies for tests, in the process of the test.
package proxytest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is a proxy on a loopback address. It connects every name to one address, so that a test
// can give a server a name that is not a loopback address, for which no proxy would be used.
type Proxy struct {
	// URL is the URL of the proxy, without the password.
	URL string
	// Password is USER:PASSWORD if the proxy requires them.
	Password string

	to   string
	mu   sync.Mutex
	seen []string
}

// HTTP returns an HTTP proxy that connects to the server at the address to.
func HTTP(t testing.TB, to string) *Proxy {
	p := &Proxy{to: to}
	p.URL = "http://" + p.listen(t, nil, p.connect)
	return p
}

// HTTPS returns an HTTPS proxy, and the certificate (PEM) that it presents, which it has signed
// itself.
func HTTPS(t testing.TB, to string) (p *Proxy, certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	p = &Proxy{to: to}
	own := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	p.URL = "https://" + p.listen(t, &tls.Config{Certificates: []tls.Certificate{own}}, p.connect)
	return p, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// SOCKS5 returns a SOCKS5 proxy.
func SOCKS5(t testing.TB, to string) *Proxy {
	p := &Proxy{to: to}
	p.URL = "socks5://" + p.listen(t, nil, p.socks)
	return p
}

// Seen returns the addresses to which clients have connected, each once.
func (p *Proxy) Seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(p.seen)))
}

// Connections returns how many connections clients have opened.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.seen)
}

// listen serves until the test ends, and returns the address.
func (p *Proxy) listen(t testing.TB, config *tls.Config, serve func(net.Conn) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// connect serves an HTTP CONNECT request.
func (p *Proxy) connect(c net.Conn) error {
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil {
		return err
	}
	if r.Method != http.MethodConnect {
		_, err := io.WriteString(c, "HTTP/1.1 405 Method Not Allowed\r\n\r\n")
		return err
	}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(p.Password))
	if p.Password != "" && r.Header.Get("Proxy-Authorization") != want {
		_, err := io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
		return err
	}
	return p.relay(c, r.Host, "HTTP/1.1 200 Connection established\r\n\r\n")
}

// socks serves a SOCKS5 request without authentication (RFC 1928).
func (p *Proxy) socks(c net.Conn) error {
	head := make([]byte, 2)
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, c, int64(head[1])); err != nil { // methods
		return err
	}
	if _, err := c.Write([]byte{5, 0}); err != nil {
		return err
	}
	request := make([]byte, 5)
	if _, err := io.ReadFull(c, request); err != nil {
		return err
	}
	if request[3] != 3 {
		return errors.New("only names are supported")
	}
	rest := make([]byte, int(request[4])+2)
	if _, err := io.ReadFull(c, rest); err != nil {
		return err
	}
	name := rest[:len(rest)-2]
	port := int(rest[len(rest)-2])<<8 | int(rest[len(rest)-1])
	return p.relay(c, fmt.Sprintf("%s:%d", name, port), "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
}

// relay answers, and carries bytes in both directions until one end closes.
func (p *Proxy) relay(c net.Conn, target, answer string) error {
	p.mu.Lock()
	p.seen = append(p.seen, target)
	p.mu.Unlock()
	up, err := net.Dial("tcp", strings.TrimPrefix(p.to, "https://"))
	if err != nil {
		return err
	}
	defer up.Close()
	if _, err := io.WriteString(c, answer); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.Close()
	}()
	_, err = io.Copy(c, up)
	return err
}
