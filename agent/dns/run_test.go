package dns

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"

	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

const (
	patience = 30 * time.Second
	look     = 10 * time.Millisecond
)

// free returns an address of this machine on which nothing listens.
func free(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// run starts the server, which ends with the test. end tells it to stop.
func run(t testing.TB, o Options) (_ Options, end func(), ended <-chan error) {
	t.Helper()
	o.ClusterID = "east"
	o.Log = discard
	o.Listen = free(t)
	o.MetricsAddr = free(t)
	o.ProbeAddr = free(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		defer close(done)
		result <- Run(ctx, o)
	}()
	t.Cleanup(func() { cancel(); <-done })
	require.Eventually(t, func() bool { return o.status("/healthz") == http.StatusOK }, patience, look)
	return o, cancel, result
}

// get returns what the server has at a URL.
func get(address, path string) (int, string) {
	r, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, ""
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(b)
}

func (o Options) status(path string) int {
	code, _ := get(o.ProbeAddr, path)
	return code
}

// ask returns the code and the addresses with which the server answers.
func (o Options) ask(name string) string {
	q := new(wire.Msg)
	q.SetQuestion(name+".svc.clusterset.local.", wire.TypeA)
	r, _, err := (&wire.Client{Timeout: time.Second}).Exchange(q, o.Listen)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(wire.RcodeToString[r.Rcode] + " " + strings.Join(addresses(r), " "))
}

// eventually waits until the server answers as wanted.
func (o Options) eventually(t *testing.T, name, want string) {
	t.Helper()
	start := time.Now()
	for got := ""; got != want; time.Sleep(look) {
		require.Less(t, time.Since(start), patience, "%s: %s instead of %s", name, got, want)
		got = o.ask(name)
	}
	t.Logf("%s: %s after %v", name, want, time.Since(start).Round(time.Millisecond))
}

// The server follows an API server, from before there are ServiceImports, until it is told to stop.
func TestRun(t *testing.T) {
	api := kubetest.Start(t)
	c := api.Client(t)
	gate := kubetest.NewGate(t, api)
	o, end, ended := run(t, Options{Config: gate.Config(api.Config())})

	// Nothing is known without the CustomResourceDefinition.
	ns := api.Namespace(t, "shop")
	time.Sleep(time.Second)
	require.Equal(t, "SERVFAIL", o.ask("web."+ns))
	code, why := get(o.ProbeAddr, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, why, "have not been read yet")
	installImports(t, c)
	o.eventually(t, "web."+ns, "NXDOMAIN")
	require.Equal(t, http.StatusOK, o.status("/readyz"))

	// Objects come, change and go.
	web := newImport(ns, "web", "10.96.0.1")
	db := newImport(ns, "db")
	east := newSlice(ns, "db", "east", "10.1.0.1")
	west := newSlice(ns, "db", "west", "10.2.0.1", "10.2.0.2")
	for _, o := range []client.Object{web, east, west, db} {
		require.NoError(t, c.Create(t.Context(), o))
	}
	o.eventually(t, "web."+ns, "NOERROR 10.96.0.1")
	require.Eventually(t, func() bool { return len(strings.Fields(o.ask("db."+ns))) == 4 }, patience, look)
	require.Equal(t, "NOERROR 10.2.0.2", o.ask("db-1.west.db."+ns))
	west.Endpoints[0].Conditions.Ready = new(false)
	west.Endpoints[1].Conditions.Ready = new(false)
	require.NoError(t, c.Update(t.Context(), west))
	o.eventually(t, "db."+ns, "NOERROR 10.1.0.1")
	require.NoError(t, c.Delete(t.Context(), east))
	o.eventually(t, "db."+ns, "NXDOMAIN")

	// What users make has no names: neither an import, nor endpoints for one of ours.
	mine := newImport(ns, "mine", "10.96.0.9")
	theirs := newSlice(ns, "db", "north", "192.0.2.1")
	mine.Labels = nil
	theirs.Labels["endpointslice.kubernetes.io/managed-by"] = "me"
	for _, o := range []client.Object{mine, theirs, newImport(ns, "last", "10.96.0.8")} {
		require.NoError(t, c.Create(t.Context(), o))
	}
	o.eventually(t, "last."+ns, "NOERROR 10.96.0.8")
	time.Sleep(200 * time.Millisecond)
	require.Equal(t, "NXDOMAIN", o.ask("mine."+ns))
	require.Equal(t, "NXDOMAIN", o.ask("db."+ns))

	// Without the API server, the answers stay. Then the server catches up, also with deletions.
	gate.Shut()
	require.NoError(t, c.Delete(t.Context(), web))
	west.Endpoints[0].Conditions.Ready = nil
	require.NoError(t, c.Update(t.Context(), west))
	time.Sleep(3 * time.Second)
	require.Equal(t, "NOERROR 10.96.0.1", o.ask("web."+ns))
	require.Equal(t, "NXDOMAIN", o.ask("db."+ns))
	require.Equal(t, http.StatusOK, o.status("/readyz"))
	gate.Open(t, api)
	o.eventually(t, "web."+ns, "NXDOMAIN")
	o.eventually(t, "db."+ns, "NOERROR 10.2.0.1")

	code, metrics := get(o.MetricsAddr, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, []string{"submariner_dns_imports 2", "submariner_dns_slices 1"},
		append(lines(metrics, "submariner_dns_imports"), lines(metrics, "submariner_dns_slices")...))
	require.Len(t, lines(metrics, "submariner_dns_queries_total"), 3) // SERVFAIL, NXDOMAIN, NOERROR

	// A server that stops leaves its Service first.
	start := time.Now()
	end()
	require.Eventually(t, func() bool { return o.status("/readyz") == http.StatusServiceUnavailable }, patience, look)
	for time.Since(start) < leaveAfter-time.Second {
		require.Equal(t, "NOERROR 10.2.0.1", o.ask("db."+ns))
		time.Sleep(100 * time.Millisecond)
	}
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("the server does not end")
	}
	require.InDelta(t, leaveAfter.Seconds(), time.Since(start).Seconds(), 3)
}

// A port that is in use ends the server, so that somebody learns of it.
func TestPortInUse(t *testing.T) {
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	api := kubetest.Shared(t)
	err = Run(
		t.Context(),
		Options{
			Config:      api.Config(),
			Log:         discard,
			Listen:      taken.LocalAddr().String(),
			MetricsAddr: free(t),
			ProbeAddr:   free(t),
		},
	)
	require.ErrorContains(t, err, "serving DNS: listen udp")
}

// installImports makes the API server serve ServiceImports.
func installImports(t testing.TB, c client.Client) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict(mcscrd.ServiceImportCRD, crd))
	require.NoError(t, kube.Apply(t.Context(), c, kube.FieldOwner, crd))
}
