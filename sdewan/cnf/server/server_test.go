package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/nstest"
	"subctl/sdewan/rest"
)

const password = "a&b=c+d%20e" // which upstream's client sends as it is

// cnf is a Server for a test.
type cnf struct {
	*Server
	changes atomic.Int64
	clock   atomic.Int64 // what is added to the time
	ready   atomic.Bool
	log     nstest.Buffer
}

func newCNF(t testing.TB, file string) *cnf {
	t.Helper()
	store, err := OpenStore(file)
	require.NoError(t, err)
	c := &cnf{}
	c.ready.Store(true)
	c.Server = New(Options{
		Store:    store,
		Password: func() (string, error) { return password, nil },
		Devices: func() *rest.Devices {
			return &rest.Devices{
				Names:     []string{"net1", "net2"},
				Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
				Default:   true,
			}
		},
		Changed: func() { c.changes.Add(1) },
		Status: func(_ context.Context, module string) (any, error) {
			if module == "wan" {
				return nil, errors.New("the kernel is gone")
			}
			return []string{module}, nil
		},
		Ready: c.ready.Load,
		Log:   slog.New(slog.NewTextHandler(&c.log, nil)),
		Now:   func() time.Time { return time.Now().Add(time.Duration(c.clock.Load())) },
	})
	return c
}

// do sends a request with a cookie, and returns the code and the body of the answer.
func (c *cnf) do(token, method, path, body string) (int, string) {
	r := httptest.NewRequest(method, "https://192.0.2.1"+path, strings.NewReader(body))
	r.Header.Set("Cookie", "sysauth="+token)
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, r)
	return w.Code, strings.TrimSuffix(w.Body.String(), "\n")
}

// guess tries a password from an address.
func (c *cnf) guess(from, password string) (int, string) {
	r := httptest.NewRequest(http.MethodPost, "https://192.0.2.1"+rest.Base,
		strings.NewReader("luci_username=root&luci_password="+password))
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// token logs in.
func (c *cnf) token(t testing.TB) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "https://192.0.2.1"+rest.Base,
		strings.NewReader("luci_username=root&luci_password="+password))
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusFound, w.Code)
	return w.Result().Cookies()[0].Value
}

// Every route, with its codes and bodies, one request after another.
func TestRoutes(t *testing.T) {
	c := newCNF(t, "")
	token := c.token(t)
	const policies, rules, base = "/cgi-bin/luci/sdewan/mwan3/v1/policies", "/cgi-bin/luci/sdewan/mwan3/v1/rules", "/cgi-bin/luci/sdewan/"
	const policy = `{"name":"p","members":[{"interface":"net1","metric":"1","weight":"2"}]}`
	const rule = `{"name":"r","policy":"p","src_ip":"","src_port":"","dest_ip":" 192.0.2.9/24","dest_port":"80","proto":"tcp","family":"","sticky":"","timeout":""}`
	const zone = `{"name":"lan","network":["net1"],"masq":"","masq_src":null,"masq_dest":[],"masq_allow_invalid":"","mtu_fix":"","input":"ACCEPT","forward":"","output":"","family":"","subnet":null,"extra_src":"<&>","etra_dest":""}`
	for _, step := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", policies, "", 200, `{"policies":[]}`},
		{"POST", rules, rule, 400, `{"message":"policy: policy \"p\" is not defined: create it first"}`},
		{
			"POST",
			policies,
			strings.Replace(policy, "net1", "eth9", 1),
			400,
			`{"message":"members[0].interface: interface \"eth9\" is not defined: the CNF has net1, net2"}`,
		},
		{"POST", policies + "/", policy, 201, policy},
		{"POST", policies, policy, 409, `{"message":"Conflict: mwan3/policies/p exists"}`},
		{"POST", rules, rule, 201, rule}, // byte for byte, also with spaces
		{"GET", "//cgi-bin//luci/sdewan/mwan3/v1/rules/r/", "", 200, rule},
		{"GET", rules + "/x", "", 404, `{"message":"Cannot find mwan3/rules[x]"}`},
		{
			"DELETE",
			policies + "/p",
			"",
			400,
			`{"message":"policy p is used by mwan3/rules/r: delete what uses it first"}`,
		},
		{"PUT", policies + "/p", strings.Replace(policy, `"p"`, `"other"`, 1), 200, policy},
		{"PUT", policies + "/q", policy, 404, `{"message":"Cannot find mwan3/policies[q]"}`},
		{"PUT", policies + "/q", `nonsense`, 404, `{"message":"Cannot find mwan3/policies[q]"}`}, // before the body
		{
			"POST",
			policies,
			strings.Replace(policy, "net1", "eth9", 1), // references, before the name
			400,
			`{"message":"members[0].interface: interface \"eth9\" is not defined: the CNF has net1, net2"}`,
		},
		{"POST", policies, strings.Replace(policy, `"p"`, `"q"`, 1), 201, strings.Replace(policy, `"p"`, `"q"`, 1)},
		{
			"POST",
			policies,
			strings.Replace(policy, `"p"`, `"blackhole"`, 1),
			400,
			`{"message":"name: every CNF has the policy \"blackhole\": choose another name"}`,
		},
		{
			"POST", rules, strings.NewReplacer(`"r"`, `"b"`, `"p"`, `"blackhole"`).Replace(rule), 201,
			strings.NewReplacer(`"r"`, `"b"`, `"p"`, `"blackhole"`).Replace(rule),
		},
		{"DELETE", rules + "/b", "", 200, `{"message":"success"}`},
		{
			"POST",
			policies,
			`{"name":"x","name":"y"}`,
			400,
			`{"message":"Body parse error: it has the key \"name\" twice"}`,
		},
		{
			"POST",
			policies,
			`{"name":"x","members":[{"interface":"net1","Interface":"net2"}]}`,
			400,
			`{"message":"Body parse error: it has the key \"Interface\": write interface"}`,
		},
		{
			"POST",
			base + "application/v1/applications",
			`{"name":"a","iplist":",,"}`,
			400,
			`{"message":"iplist: required"}`,
		},
		{
			"PUT",
			policies + "/p",
			`{"members":[{"interface":"net1","metric":"1","weight":"2"},{"interface":"net1","metric":"1","weight":"2"}]}`,
			400,
			`{"message":"members[1].interface: same interface \"net1\" is used in different members"}`,
		},
		{"GET", policies + "/p", "", 200, policy}, // what is refused changes nothing
		{"GET", policies, "", 200, `{"policies":[` + policy + `,` + strings.Replace(policy, `"p"`, `"q"`, 1) + `]}`},
		{"DELETE", rules + "/r", "", 200, `{"message":"success"}`},
		{"DELETE", policies + "/p", "", 200, `{"message":"success"}`},
		{"DELETE", policies + "/p", "", 404, `{"message":"mwan3/policies/p is not defined"}`},
		{
			"POST",
			policies,
			`{"name":"","members":[{"interface":"net1","metric":"1","weight":"2"}]}`,
			400,
			`{"message":"name: required"}`,
		},
		{
			"POST",
			policies,
			`{"name":"p","members":[{"interface":"net1","metric":1,"weight":"2"}]}`,
			400,
			`{"message":"Body parse error: members.metric: a string is expected, such as \"1\", not a number"}`,
		},
		{
			"POST",
			base + "firewall/v1/zones",
			`{"name":"z","network":"net1"}`,
			400,
			`{"message":"Body parse error: network: a list is expected, not a string"}`,
		},
		{"POST", policies, `null`, 400, `{"message":"Body parse error: it is not a JSON object"}`},
		{"POST", policies, `{"name":`, 400, `{"message":"Body parse error: it is not JSON from byte 8 on"}`},
		{"POST", policies, policy + "x", 400, `{"message":"Body parse error: it is not JSON from byte 72 on"}`},
		{"POST", policies, "{\"name\":\"\xff\"}", 400, `{"message":"Body parse error: it is not UTF-8"}`},
		{"POST", policies, "", 400, `{"message":"Body parse error: it is not a JSON object"}`},
		{"POST", policies + "/p", policy, 400, `{"message":"Bad request URI"}`},
		{"PUT", policies, policy, 400, `{"message":"Bad request URI"}`},
		{"DELETE", policies + "/", "", 400, `{"message":"Bad request URI"}`},
		{"GET", policies + "/p/q", "", 400, `{"message":"Bad request URI"}`},
		{"PATCH", policies + "/p", policy, 405, `{"message":"Method Not Allowed"}`},
		{"POST", base + "firewall/v1/zones", zone, 201, zone},
		{"POST", base + "firewall/v1/zones", zone, 409, `{"message":"Conflict: firewall/zones/lan exists"}`},
		{
			"POST",
			base + "ipsec/v1/remotes",
			`{"name":"hub","gateway":"any","pre_shared_key":"sesame","authentication_method":"psk","crypto_proposal":["x"],"connections":[{"name":"c","conn_type":"tunnel","mode":"start"}]}`,
			428,
			`{"message":"crypto_proposal: proposal \"x\" is not defined: create it first"}`,
		},
		{
			"POST",
			base + "route/v1/routes/",
			`{"name":"r","dst":"default","dev":"vti_1"}`,
			428,
			`{"message":"dev: interface \"vti_1\" is not defined: the CNF has net1, net2"}`,
		},
		{
			"POST",
			base + "rule/v1/rules/",
			`{"name":"r","flag":true,"prio":"7"}`,
			201,
			`{"name":"r","src":"","dst":"","flag":true,"prio":"7","fwmark":"","table":""}`,
		},
		{
			"GET",
			base + "rule/v1/rules",
			"",
			200,
			`{"routerules":[{"name":"r","src":"","dst":"","flag":true,"prio":"7","fwmark":"","table":""}],"rules":[{"name":"r","src":"","dst":"","flag":true,"prio":"7","fwmark":"","table":""}]}`,
		},
		{"GET", base + "application/v1/applications", "", 200, `{"applications":[],"apps":[]}`},
		{
			"POST",
			base + "service/v1/services/",
			`{"name":"s","fullname":"web","port":"80","dport":"8080"}`,
			200,
			`{"name":"s","fullname":"web","port":"80","dport":"8080"}`,
		},
		{
			"POST",
			base + "service/v1/services/",
			`{"name":"s","fullname":"web","port":"80","dport":"8080"}`,
			409,
			`{"message":"Conflict: service/services/s exists"}`,
		},
		{
			"POST",
			base + "service/v1/services/",
			`{"name":"t","fullname":"web","port":"80","dport":"80800"}`,
			416,
			`{"message":"dport: \"80800\" is not an integer from 1 to 65535"}`,
		},
		{"PUT", base + "service/v1/services/s", `{}`, 405, `{"message":"Method Not Allowed"}`},
		{
			"GET",
			base + "service/v1/services",
			"",
			200,
			`{"services":[{"name":"s","fullname":"web","port":"80","dport":"8080"}],"svcs":[{"name":"s","fullname":"web","port":"80","dport":"8080"}]}`,
		},
		{"DELETE", base + "service/v1/services/none", "", 200, `{"message":"success"}`},
		{"GET", base + "v1/services", "", 200, `{"services":["mwan3","firewall","ipsec"]}`},
		{"PUT", base + "v1/service/ipsec", `{"action":"stop"}`, 200, `{"message":"success"}`},
		{"PUT", base + "v1/services/mwan3", `{"action":"restart"}`, 200, `{"message":"success"}`},
		{
			"PUT",
			base + "v1/service/firewall",
			`{"action":"explode"}`,
			400,
			`{"message":"Field[action] checked failed: wrong action: use start, stop, restart or reload"}`,
		},
		{"PUT", base + "v1/service/firewall", `{}`, 400, `{"message":"Field[action] checked failed: required"}`},
		{"PUT", base + "v1/service/dns", `{"action":"stop"}`, 400, `{"message":"Bad request URI"}`},
		{"GET", base + "v1/service/ipsec", ``, 405, `{"message":"Method Not Allowed"}`},
		{"GET", base + "v1", ``, 200, `{"message":"sdewan restful API service v1"}`},
		{"GET", base + "nat/v1", ``, 200, `{"message":"sdewan restful API service v1"}`},
		{"GET", base + "v1/status/route", ``, 200, `{"name":"route","status":["route"]}`},
		{
			"GET",
			base + "v1/status/wan",
			``,
			500,
			`{"message":"reading the status of wan failed: see the log of the CNF"}`,
		},
		{"GET", base + "v1/status/dhcp", ``, 400, `{"message":"Bad request URI: dhcp is not supported"}`},
		{"GET", "/cgi-bin/luci/admin/status/mwan/interface_status", ``, 200, `["interface_status"]`},
		{"GET", base + "mwan3/v1/zones", ``, 404, `{"message":"Not Found: mwan3 has no zones"}`},
		{"GET", base + "mwan3/v2/rules", ``, 404, `{"message":"Not Found"}`},
		{"GET", "/cgi-bin/luci/admin", ``, 404, `{"message":"Not Found"}`},
		{"GET", "/etc/shadow", ``, 404, `{"message":"Not Found"}`},
		{"GET", base + "mwan3/v1/rules/%2e%2e%2fx", ``, 404, `{"message":"Cannot find mwan3/rules[../x]"}`},
		{"GET", "/", ``, 200, `{"message":"ready"}`},
		{"GET", "/cgi-bin/luci/admin/logout", ``, 200, `{"message":"success"}`},
		{"GET", policies, "", 403, `{"message":"Forbidden: log in, as the session is missing or has expired"}`},
	} {
		before := c.changes.Load()
		code, body := c.do(token, step.method, step.path, step.body)
		require.Equal(t, step.code, code, "%s %s %s: %s", step.method, step.path, step.body, body)
		require.Equal(t, step.want, body, "%s %s", step.method, step.path)
		changed := step.method != "GET" && code < 300
		require.Equal(t, changed, c.changes.Load() > before, "%s %s", step.method, step.path)
	}
	require.Equal(t, []string{"ipsec"}, c.Store.Config().Stopped)
	require.False(t, c.Store.Config().Awaiting)
	require.NotContains(t, c.log.String(), "sesame")
}

// All modules in one answer, in their order, as upstream's controller reads them; LuCI's own page
// has no name.
func TestStatus(t *testing.T) {
	c := newCNF(t, "")
	c.Status = func(_ context.Context, module string) (any, error) {
		if module == "route" {
			return map[string]any{"main": map[string]any{"item": []any{}}}, nil
		}
		return []string{module}, nil
	}
	token := c.token(t)
	for path, want := range map[string]string{
		"sdewan/v1/status": `[{"name":"conntrack","status":["conntrack"]},{"name":"effect","status":["effect"]},{"name":"interface","status":["interface"]},{"name":"ipsec","status":["ipsec"]},{"name":"neighbour","status":["neighbour"]},` +
			`{"name":"route","status":{"main":{"item":[]}}},{"name":"rule","status":["rule"]},{"name":"wan","status":["wan"]}]`,
		"sdewan/v1/status/":                     "",
		"sdewan/v1/status/ipsec":                `{"name":"ipsec","status":["ipsec"]}`,
		"admin/status/mwan/interface_status":    `["interface_status"]`,
		"sdewan/v1/status/interface_status":     `{"message":"Bad request URI: interface_status is not supported"}`,
		"sdewan/v1/status/ipsec/more":           `{"message":"Not Found"}`,
		"sdewan/v1/status/%2e%2e/service/ipsec": `{"message":"Not Found"}`,
		"sdewan/v1/status/" +
			strings.Repeat("x", 50): `{"message":"Bad request URI: ` + strings.Repeat("x", 50) + ` is not supported"}`,
	} {
		_, body := c.do(token, "GET", rest.Base+path, "")
		if want == "" { // trailing slashes do not count
			_, want = c.do(token, "GET", rest.Base+strings.TrimSuffix(path, "/"), "")
		}
		require.Equal(t, want, body, path)
	}
	c.Status = func(_ context.Context, module string) (any, error) {
		if module == "ipsec" {
			return nil, errors.New("charon does not answer")
		}
		return []string{module}, nil
	}
	code, body := c.do(token, "GET", rest.Base+"sdewan/v1/status", "")
	require.Equal(t, 200, code)
	require.Contains(t, body,
		`{"name":"interface","status":["interface"]},{"name":"ipsec","error":"reading the status of ipsec failed: see the log of the CNF"},{"name":"neighbour",`,
		"the other modules report")
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		code, _ := c.do(token, method, rest.Base+"sdewan/v1/status", "{}")
		require.Equal(t, 405, code, method)
	}
	code, _ = c.do("wrong", "GET", rest.Base+"sdewan/v1/status", "")
	require.Equal(t, 403, code)
}

// A rule that is replaced keeps its place: which of two rules comes first is decided by when they
// were created.
func TestOrder(t *testing.T) {
	c := newCNF(t, "")
	token := c.token(t)
	path := rest.Rules.Path()
	for _, name := range []string{"c", "a", "b"} {
		code, _ := c.do(token, "POST", path, `{"name":"`+name+`","policy":"default"}`)
		require.Equal(t, 201, code)
	}
	code, _ := c.do(token, "PUT", path+"/c", `{"policy":"blackhole"}`)
	require.Equal(t, 200, code)
	var got []string
	for _, r := range c.Store.Config().Rules {
		got = append(got, r.Name+" "+r.Policy)
	}
	require.Equal(t, []string{"c blackhole", "a default", "b default"}, got)

	r := httptest.NewRequest("PUT", "https://192.0.2.1"+path+"/c", strings.NewReader(`{"policy":"unreachable"}`))
	r.Header.Set("Cookie", "sysauth="+token)
	r.Header.Set(rest.PlaceHeader, rest.PlaceLast)
	w := httptest.NewRecorder()
	changes := c.changes.Load()
	c.Handler().ServeHTTP(w, r)
	require.Equal(t, 200, w.Code)
	require.Equal(t, rest.PlaceLast, w.Header().Get(rest.PlaceHeader), "the answer tells that it was done")
	require.Equal(t, changes+1, c.changes.Load())
	require.Equal(t, []string{"a", "b", "c"}, namesOf(c.Store.Config().Rules))
}

func namesOf(rules []rest.Rule) (out []string) {
	for _, r := range rules {
		out = append(out, r.Name)
	}
	return out
}

// Of requests at the same time that create the same object, one succeeds; no change is lost.
func TestConcurrent(t *testing.T) {
	c := newCNF(t, filepath.Join(t.TempDir(), "state"))
	token := c.token(t)
	var created, conflicts atomic.Int64
	var wait sync.WaitGroup
	for i := range 10 {
		wait.Go(func() {
			for j := range 20 {
				code, _ := c.do(token, "POST", rest.Rules.Path(),
					fmt.Sprintf(`{"name":"shared-%d","policy":"default"}`, j))
				switch code {
				case 201:
					created.Add(1)
				case 409:
					conflicts.Add(1)
				}
				own := fmt.Sprintf("own-%d-%d", i, j)
				code, _ = c.do(token, "POST", rest.Rules.Path(), fmt.Sprintf(`{"name":%q,"policy":"default"}`, own))
				if code != 201 {
					t.Errorf("POST: %d", code)
				}
				code, _ = c.do(token, "PUT", rest.Rules.ItemPath(own), `{"policy":"default"}`)
				if code != 200 {
					t.Errorf("PUT: %d", code)
				}
			}
		})
	}
	wait.Wait()
	require.EqualValues(t, 20, created.Load())
	require.EqualValues(t, 180, conflicts.Load())
	require.Len(t, c.Store.Config().Rules, 220)
	again, err := OpenStore(c.Store.file)
	require.NoError(t, err)
	require.Equal(t, c.Store.Config(), again.Config())
}

// listening runs a CNF with TLS, and returns its address and the CA of its certificate.
func (c *cnf) listening(t testing.TB) (address string, pool *x509.CertPool, l Listeners) {
	t.Helper()
	folder := t.TempDir()
	l.Cert = filepath.Join(folder, "tls.crt")
	l.Key = filepath.Join(folder, "tls.key")
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(writePair(t, l)))
	var err error
	l.HTTPS, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.HTTP, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return l.HTTPS.Addr().String(), pool, l
}

// writePair writes a new certificate and its key to files, and returns the certificate.
func writePair(t testing.TB, l Listeners) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "cnf"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(l.Cert, cert, 0o600))
	require.NoError(t, os.WriteFile(l.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return cert
}

// The port without TLS answers the probe, and nothing else.
func TestProbe(t *testing.T) {
	c := newCNF(t, "")
	_, _, l := c.listening(t)
	get := func(path string) int {
		resp, err := http.Get("http://" + l.HTTP.Addr().String() + path)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		return resp.StatusCode
	}
	require.Equal(t, 200, get("/"))
	require.Equal(t, 404, get(rest.Policies.Path()))
	require.Equal(t, 404, get(rest.Base))
	c.ready.Store(false)
	require.Equal(t, 503, get("/"))
}
