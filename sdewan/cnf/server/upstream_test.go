package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/sdewan/rest"
)

// upstream makes requests as the client of ICN SD-EWAN does: it does not escape the password, reads
// the first Set-Cookie only, sends no Content-Type, makes a connection for each request, logs in
// again at 403 and decodes every answer.
type upstream struct {
	base, password, token string
	pool                  *x509.CertPool
	logins                int
}

func (u *upstream) client() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: u.pool, MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (u *upstream) login() (int, error) {
	u.logins++
	r, err := http.NewRequest(http.MethodPost, u.base,
		strings.NewReader("luci_username=root&luci_password="+u.password))
	if err != nil {
		return 0, err
	}
	r.Header.Add("Content-Type", "application/x-www-form-urlencoded")
	resp, err := u.client().Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != 302 {
		return resp.StatusCode, nil
	}
	for _, c := range strings.Split(resp.Header["Set-Cookie"][0], ";") {
		if key, value, _ := strings.Cut(strings.TrimSpace(c), "="); key == "sysauth" {
			u.token = value
		}
	}
	return 302, nil
}

func (u *upstream) call(t *testing.T, method, path, body string) (int, []byte) {
	t.Helper()
	for try := 0; ; try++ {
		if u.token == "" {
			code, err := u.login()
			require.NoError(t, err)
			require.Equal(t, 302, code)
		}
		r, err := http.NewRequest(method, u.base+path, bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		r.Header.Add("Cookie", "sysauth="+u.token)
		resp, err := u.client().Do(r)
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != 403 || try > 0 {
			return resp.StatusCode, b
		}
		u.token = ""
	}
}

func TestUpstreamClient(t *testing.T) {
	c := newCNF(t, "")
	address, pool, l := c.listening(t)
	u := &upstream{base: "https://" + address + "/cgi-bin/luci/", password: password, pool: pool}

	sent := rest.Remote{
		Name:          "ipsechub",
		Gateway:       "any",
		Auth:          "psk",
		PreSharedKey:  "sesame-open",
		Type:          "policy-based",
		ForceProposal: "1",
		Connections: []rest.Connection{
			{Name: "b", Type: "transport", Mode: "add", IfID: "7"},
			{Name: "a", Type: "tunnel", Mode: "start", LocalSubnet: "172.12.0.0/24, 10.239.160.22"},
		},
	}
	body, err := json.Marshal(sent)
	require.NoError(t, err)
	require.Contains(t, string(body), `"crypto_proposal":null`)
	code, _ := u.call(t, "GET", "sdewan/ipsec/v1/remotes/ipsechub", "")
	require.Equal(t, 404, code)
	code, b := u.call(t, "POST", "sdewan/ipsec/v1/remotes/", string(body))
	require.Equal(t, 201, code, string(b))
	for range 2 { // PUT of what is there, too
		code, b = u.call(t, "GET", "sdewan/ipsec/v1/remotes/ipsechub", "")
		require.Equal(t, 200, code)
		var got rest.Remote
		require.NoError(t, json.Unmarshal(b, &got))
		require.Equal(t, sent, got, "upstream's controller would see a difference, and write it again and again")
		code, _ = u.call(t, "PUT", "sdewan/ipsec/v1/remotes/ipsechub", string(body))
		require.Equal(t, 200, code)
	}
	code, _ = u.call(t, "PUT", "sdewan/v1/service/ipsec", `{"action":"restart"}`)
	require.Equal(t, 200, code)
	require.Equal(t, 1, u.logins)

	// The session expires: 403, and the client logs in again.
	c.clock.Add(int64(sessionIdle + time.Minute))
	code, _ = u.call(t, "DELETE", "sdewan/ipsec/v1/remotes/ipsechub", "")
	require.Equal(t, 200, code)
	require.Equal(t, 2, u.logins)

	wrong := &upstream{base: u.base, password: "x", pool: pool}
	code, err = wrong.login()
	require.NoError(t, err)
	require.Equal(t, 403, code)
	require.NotContains(t, c.log.String(), "sesame")
	require.NotContains(t, c.log.String(), password)

	// A new certificate is used by the next connection, and a damaged one is not.
	pool.AppendCertsFromPEM(writePair(t, l))
	require.NoError(t, os.Chtimes(l.Key, time.Time{}, time.Now().Add(time.Hour)))
	serial := func() string {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	second := serial()
	require.NoError(t, os.WriteFile(l.Cert, []byte("damaged"), 0o600))
	require.Equal(t, second, serial())
	require.Contains(t, c.log.String(), "the new certificate of the REST API cannot be used")
	next := writePair(t, l)
	pool.AppendCertsFromPEM(next)
	require.NoError(t, os.Chtimes(l.Key, time.Time{}, time.Now().Add(2*time.Hour)))
	require.NotEqual(t, second, serial())
}
