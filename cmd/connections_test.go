package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cluster"
	"subctl/internal/cli"
	"subctl/internal/kubetest"
	"subctl/internal/proxy/proxytest"
)

// nameInCertificate is in the certificates of the tests' API servers.
const nameInCertificate = "kubernetes"

// portOf returns the port in the address of an API server.
func portOf(t *testing.T, server *kubetest.Server) string {
	t.Helper()
	u, err := url.Parse(server.Config().Host)
	require.NoError(t, err)
	return u.Port()
}

// Every command reaches the broker through the proxy of HTTPS_PROXY, of --proxy-url or of the
// kubeconfig, and trusts the certificate authority of the join file there, too; the gateways get
// the proxy, and its password in a Secret only.
func TestJoinThroughAProxy(t *testing.T) {
	w := newJoinWorld(t)
	via := proxytest.HTTP(t, w.hub.Config().Host)
	via.Password = "agent:let-me-in"
	withPassword := strings.Replace(via.URL, "://", "://"+via.Password+"@", 1)
	address := "https://hub.example:" + portOf(t, w.hub) // no loopback address: through proxies
	join := func(args ...string) result {
		return w.run(t, append([]string{
			"join", w.file, "--clusterid", "west", "--wait=false", "--broker-url", address,
			"--broker-tls-server-name", nameInCertificate,
		}, args...)...)
	}

	t.Log("without a proxy, the broker has no address here")
	t.Setenv("HTTPS_PROXY", "")
	t.Setenv("NO_PROXY", "")
	r := join("--dry-run")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, "or a proxy with HTTPS_PROXY or --proxy-url")

	t.Log("another certificate authority is refused, and the message does not recommend to switch the check off")
	t.Setenv("HTTPS_PROXY", withPassword)
	r = w.run(t, "join", w.file, "--clusterid", "west", "--dry-run", "--broker-url", address)
	require.Contains(t, r.stderr, "through the proxy "+via.URL+" (from HTTPS_PROXY) is for another name")
	require.Contains(t, r.stderr, "--broker-tls-server-name")
	require.NotContains(t, r.stderr, "check-broker-certificate")

	t.Log("the proxy is a local one, which gateways cannot use")
	r = join("--dry-run")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Contains(t, r.stderr, "this machine reaches the broker through its own proxy "+via.URL+
		" (from HTTPS_PROXY), which gateways cannot use")
	require.Equal(t, []string{"hub.example:" + portOf(t, w.hub)}, via.Seen())

	t.Log("--https-proxy: in the Submariner without a password, which is in the Secret")
	r = join("--https-proxy", via.URL, "--no-proxy", "10.9.0.0/16,.corp.example")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	sub := &v1alpha1.Submariner{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: v1alpha1.SubmarinerName}
	require.NoError(t, w.memberC.Get(t.Context(), key, sub))
	require.Equal(t, via.URL, sub.Spec.BrokerK8sHTTPSProxy)
	require.Equal(t, []string{"10.9.0.0/16", ".corp.example"}, sub.Spec.BrokerK8sNoProxy)
	require.Equal(t, nameInCertificate, sub.Spec.BrokerK8sTLSServerName)
	text, err := json.Marshal(sub)
	require.NoError(t, err)
	require.NotContains(t, string(text)+r.stderr+r.stdout, "let-me-in")
	password := func() string {
		creds := &corev1.Secret{}
		require.NoError(t, w.memberC.Get(t.Context(),
			client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.BrokerSecret}, creds))
		return string(creds.Data[broker.ProxyUserKey])
	}
	require.Equal(t, via.Password, password())

	t.Log("joining again leaves all of it as it is; --proxy-url reaches the broker, and the member through it, too")
	t.Setenv("HTTPS_PROXY", "")
	both := proxytest.HTTP(t, w.hub.Config().Host)
	r = w.run(t, "join", w.file, "--wait=false", "--broker-url", address, "--kubeconfig",
		w.proxied(t, address, both.URL))
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.NoError(t, w.memberC.Get(t.Context(), key, sub))
	require.Equal(t, via.URL, sub.Spec.BrokerK8sHTTPSProxy)
	require.Equal(t, nameInCertificate, sub.Spec.BrokerK8sTLSServerName)
	require.Equal(t, via.Password, password())

	t.Log("another proxy never gets the password of this one; none removes both")
	t.Setenv("HTTPS_PROXY", withPassword)
	r = w.run(t, "join", w.file, "--wait=false", "--https-proxy", "http://other.example:3128")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.Empty(t, password())
	r = w.run(t, "join", w.file, "--wait=false", "--https-proxy", "none")
	require.Equal(t, cli.ExitDone, r.code, r.stderr)
	require.NoError(t, w.memberC.Get(t.Context(), key, sub))
	require.Equal(t, "none", sub.Spec.BrokerK8sHTTPSProxy)

	t.Log("mistakes")
	for _, bad := range []string{withPassword, "ftp://p.example", "p example", "http://p.example/path"} {
		r = w.run(t, "join", w.file, "--https-proxy", bad)
		require.Equal(t, cli.ExitUsage, r.code)
		require.Contains(t, r.stderr, "--https-proxy")
		require.NotContains(t, r.stderr, "let-me-in")
	}
	r = w.run(t, "join", w.file, "--no-proxy", "a b")
	require.Equal(t, cli.ExitUsage, r.code)

	t.Log("uninstall asks the broker through the proxy, too, with the name in the certificate")
	asked := via.Connections()
	r = w.run(t, "uninstall", "--yes", "--timeout", "1s")
	require.Greater(t, via.Connections(), asked, r.stderr)
	require.NotContains(t, r.stderr, "removing this cluster from the broker at")
}

// proxied returns a kubeconfig of the member that also has a cluster with an address and a proxy.
func (w *joinWorld) proxied(t *testing.T, address, via string) string {
	t.Helper()
	raw, err := clientcmd.LoadFromFile(w.member.Kubeconfig())
	require.NoError(t, err)
	raw.Clusters["hub"] = &api.Cluster{Server: address, ProxyURL: via}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*raw, path))
	return path
}

// deploy-broker works with every kind of kubeconfig, and what a cluster needs to reach the API
// server is in the join file: with each file, a client reaches the broker.
func TestDeployBrokerWithKubeconfigs(t *testing.T) {
	h := newHub(t)
	port := portOf(t, h.server)
	origin := h.server.Config()
	via := proxytest.HTTP(t, origin.Host)
	socks := proxytest.SOCKS5(t, origin.Host)
	rancher := pathProxy(t, h.server, true)
	forwarding := pathProxy(t, h.server, false)
	inline := func(c *api.Cluster, u *api.AuthInfo) {
		c.CertificateAuthorityData = origin.CAData
		c.CertificateAuthority = ""
	}
	for name, test := range map[string]struct {
		change func(*api.Cluster, *api.AuthInfo)
		args   []string
		name   string // in the join file
		says   []string
		wrong  bool // a client with the file does not reach the broker
		// environment is HTTPS_PROXY.
		environment string
	}{
		"files of a client certificate": {change: inline},
		"an exec plugin": {change: func(c *api.Cluster, u *api.AuthInfo) {
			*u = api.AuthInfo{Exec: h.plugin(t)}
		}},
		"a name in the certificate, behind a tunnel": {change: func(c *api.Cluster, _ *api.AuthInfo) {
			c.Server = "https://localhost:" + port
			c.TLSServerName = nameInCertificate
		}, name: nameInCertificate, says: []string{"can be reached only from its own machine"}},
		"no verification": {change: func(c *api.Cluster, _ *api.AuthInfo) {
			c.InsecureSkipTLSVerify = true
			c.CertificateAuthority = ""
			c.CertificateAuthorityData = nil
		}},
		"a proxy": {change: func(c *api.Cluster, _ *api.AuthInfo) {
			c.Server = "https://hub.example:" + port
			c.TLSServerName = nameInCertificate
			c.ProxyURL = via.URL
		}, name: nameInCertificate},
		"a SOCKS5 proxy": {change: func(c *api.Cluster, _ *api.AuthInfo) {
			c.Server = "https://hub.example:" + port
			c.TLSServerName = nameInCertificate
			c.ProxyURL = socks.URL
		}, name: nameInCertificate},
		"a path": {change: func(c *api.Cluster, u *api.AuthInfo) {
			*c = api.Cluster{Server: forwarding.url + "/k8s/clusters/c-abc", CertificateAuthorityData: forwarding.ca}
			*u = api.AuthInfo{Token: forwarding.token}
		}, says: []string{"has a path"}},
		"a path of Rancher": {change: func(c *api.Cluster, u *api.AuthInfo) {
			*c = api.Cluster{Server: rancher.url + "/k8s/clusters/c-abc", CertificateAuthorityData: rancher.ca}
			*u = api.AuthInfo{Token: rancher.token}
		}, says: []string{"has a path", "clusters cannot join with this file: the broker at ", "does not accept the " +
			"tokens of service accounts", "--broker-url"}, wrong: true},
		"another address, with another name": {
			change: inline,
			args: []string{
				"--broker-url", "https://localhost:" + port, "--broker-tls-server-name", nameInCertificate,
			},
			name: nameInCertificate,
		},
		"another address, whose certificate has another name": {
			change: inline, args: []string{"--broker-url", "https://other.example:" + port}, wrong: true,
			environment: via.URL,
			says: []string{"clusters cannot join with this file: the certificate of the broker at " +
				"https://other.example:" + port + " through the proxy " + via.URL + " (from HTTPS_PROXY) is for " +
				"another name", "--broker-tls-server-name"},
		},
		"a container's name": {
			change: inline, args: []string{"--broker-url", "https://kind-control-plane:6443"}, wrong: true,
			says: []string{"has the name of a container", "could not be tried from here"},
		},
		"IPv6": {
			change: inline, args: []string{"--broker-url", "https://[::1]:" + port}, wrong: true,
			says: []string{"can be reached only from its own machine"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if test.environment != "" {
				t.Setenv("HTTPS_PROXY", test.environment)
			}
			raw, err := clientcmd.LoadFromFile(h.server.Kubeconfig())
			require.NoError(t, err)
			for _, c := range raw.Contexts {
				test.change(raw.Clusters[c.Cluster], raw.AuthInfos[c.AuthInfo])
			}
			require.NoError(t, clientcmd.WriteToFile(*raw, "kubeconfig"))
			r := h.done(t, append([]string{"deploy-broker", "--kubeconfig", "kubeconfig"}, test.args...)...)
			for _, text := range test.says {
				require.Contains(t, r.stderr, text)
			}
			f, err := broker.ReadJoinFile(broker.JoinFileName, nil, time.Now())
			require.NoError(t, err)
			require.Equal(t, test.name, f.TLSServerName)
			g := newGlobals(genericiooptions.IOStreams{Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{}})
			*g.Flags.KubeConfig = "kubeconfig"
			f.Proxy = g.BrokerProxy(f.BrokerURL)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = g.Connect(ctx, f.RESTConfig(false))
			require.Equal(t, test.wrong, err != nil, "%v", err)
			h.remove(t)
		})
	}
	t.Run("several files in KUBECONFIG", func(t *testing.T) {
		t.Chdir(t.TempDir())
		raw, err := clientcmd.LoadFromFile(h.server.Kubeconfig())
		require.NoError(t, err)
		users := api.NewConfig()
		users.AuthInfos = raw.AuthInfos
		raw.AuthInfos = nil
		require.NoError(t, clientcmd.WriteToFile(*users, "users"))
		require.NoError(t, clientcmd.WriteToFile(*raw, "clusters"))
		t.Setenv("KUBECONFIG", "users"+string(os.PathListSeparator)+"clusters")
		h.done(t, "deploy-broker", "--dry-run")
	})
	t.Run("a warning also with --dry-run", func(t *testing.T) {
		r := h.done(t, "deploy-broker", "--dry-run", "--broker-url", "https://rancher.example/k8s/clusters/c-abc")
		require.Contains(t, r.stderr, "the broker's address https://rancher.example/k8s/clusters/c-abc has a path: "+
			"it is usually a proxy with users of its own")
	})
}

// remove removes the broker, so that the next one gets keys of its own.
func (h *hub) remove(t *testing.T) {
	t.Helper()
	b := &v1alpha1.Broker{}
	b.Namespace = "submariner-k8s-broker"
	b.Name = v1alpha1.BrokerName
	require.NoError(t, client.IgnoreNotFound(h.client.Delete(t.Context(), b)))
}

// plugin returns an exec plugin that prints the client certificate of the administrator.
func (h *hub) plugin(t *testing.T) *api.ExecConfig {
	t.Helper()
	dir := t.TempDir()
	c := h.server.Config()
	require.NoError(t, restLoad(c.CertFile, &c.CertData))
	require.NoError(t, restLoad(c.KeyFile, &c.KeyData))
	credential, err := json.Marshal(map[string]any{
		"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
		"status": map[string]string{"clientCertificateData": string(c.CertData), "clientKeyData": string(c.KeyData)},
	})
	require.NoError(t, err)
	answer := filepath.Join(dir, "answer")
	script := filepath.Join(dir, "plugin")
	require.NoError(t, os.WriteFile(answer, credential, 0o600))
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nexec cat %s\n", answer), 0o700))
	return &api.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: script, InteractiveMode: api.NeverExecInteractiveMode,
	}
}

// restLoad reads a file into data unless there are data.
func restLoad(file string, data *[]byte) (err error) {
	if len(*data) == 0 && file != "" {
		*data, err = os.ReadFile(file)
	}
	return err
}

// fronted is an API server below a path.
type fronted struct {
	url   string
	ca    []byte
	token string // of a user of the proxy
}

// pathProxy runs an HTTP proxy as Rancher's, with an API server below /k8s/clusters/c-abc. For a
// user with its own token it acts as the administrator; it passes other tokens on, unless it
// refuses them.
func pathProxy(t *testing.T, server *kubetest.Server, refuses bool) fronted {
	t.Helper()
	cfg := server.Config()
	u, err := url.Parse(cfg.Host)
	require.NoError(t, err)
	administrator, err := rest.TransportFor(cfg)
	require.NoError(t, err)
	others, err := rest.TransportFor(server.As(""))
	require.NoError(t, err)
	const token = "kubeconfig-user-abc"
	p := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/k8s/clusters/c-abc")
			r.Out.URL.RawPath = ""
		},
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Authorization") == "Bearer "+token {
				r.Header.Del("Authorization")
				return administrator.RoundTrip(r)
			}
			return others.RoundTrip(r)
		}),
		FlushInterval: -1,
	}
	return serveTLS(t, token, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		isUser := r.Header.Get("Authorization") == "Bearer "+token
		if !strings.HasPrefix(r.URL.Path, "/k8s/clusters/c-abc/") || refuses && !isUser {
			http.Error(rw, `{"type":"error","status":"401","message":"must authenticate"}`, http.StatusUnauthorized)
			return
		}
		p.ServeHTTP(rw, r)
	}))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// serveTLS serves a handler, whose certificate has signed itself.
func serveTLS(t *testing.T, token string, handler http.Handler) fronted {
	t.Helper()
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	return fronted{
		url: s.URL, ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), token: token,
	}
}
