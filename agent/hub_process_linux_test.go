package agent

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kubetest"
	"subctl/policy"
)

// childSite is a joined cluster. Its exchange and its planner run in a process of their own.
type childSite struct {
	ID          string
	Sets        []string
	Base        string        // namespace of the broker
	Kubeconfig  string        // of the cluster, which is the broker's cluster
	Server      string        // host:port of the broker
	Credentials string        // directory with the token of the broker
	Namespace   string        // of the cluster
	Idle        time.Duration // how long "idle" measures

	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

// childReport is what the process of a childSite says about itself.
type childReport struct {
	Seconds     float64 // since its start
	Cables      int
	PeakMiB     float64 // resident memory
	HeapKiB     float64 // live objects
	Connections int     // to the broker, at most at a time
	CPUPercent  float64
}

// childEnv is set in the process of a childSite.
const childEnv = "SUBCTL_CHILD_SITE"

func (s *childSite) writeCredentials(b *testing.B, cred *broker.Credentials) {
	b.Helper()
	require.NoError(b, os.WriteFile(filepath.Join(s.Credentials, "token"), cred.Token, 0o600))
	require.NoError(b, os.WriteFile(filepath.Join(s.Credentials, "ca.crt"), cred.CA, 0o600))
}

// start starts the process.
func (s *childSite) start(b *testing.B) {
	b.Helper()
	config, err := json.Marshal(s)
	require.NoError(b, err)
	file := filepath.Join(s.Credentials, "site.json")
	require.NoError(b, os.WriteFile(file, config, 0o600))
	s.process = exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^TestChildSite$", "-test.timeout", "20m")
	s.process.Env = append(os.Environ(), childEnv+"="+file)
	s.process.Stderr = os.Stderr
	s.in, err = s.process.StdinPipe()
	require.NoError(b, err)
	out, err := s.process.StdoutPipe()
	require.NoError(b, err)
	s.out = bufio.NewScanner(out)
	require.NoError(b, s.process.Start())
}

// stop ends the process.
func (s *childSite) stop() {
	_ = s.in.Close()
	for s.out.Scan() {
	}
	_ = s.process.Wait()
}

// complete waits until the plan of the process is complete.
func (s *childSite) complete(b *testing.B) childReport { return s.ask(b, "complete") }

// ask asks the process for a report.
func (s *childSite) ask(b *testing.B, about string) (r childReport) {
	b.Helper()
	_, err := fmt.Fprintln(s.in, about)
	require.NoError(b, err)
	for s.out.Scan() {
		if text, ok := strings.CutPrefix(s.out.Text(), "report "); ok {
			require.NoError(b, json.Unmarshal([]byte(text), &r))
			b.Logf("%s: %s: %+v", s.ID, about, r)
			return r
		}
		b.Log(s.ID, s.out.Text())
	}
	b.Fatal(s.ID, "has ended")
	return r
}

// TestChildSite is the process of a childSite. It reports what its standard input asks for.
func TestChildSite(t *testing.T) {
	began := time.Now()
	file := os.Getenv(childEnv)
	if file == "" {
		return // this is not the process that BenchmarkHub starts
	}
	s := &childSite{}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, s))
	local, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	require.NoError(t, err)
	local.QPS = -1
	remote, err := broker.RESTConfig(s.Credentials, broker.Access{Server: s.Server}, "")
	require.NoError(t, err)
	connections := countConnections(remote)
	changed := make(chan struct{}, 1)
	identity := brokertest.IdentityIn(s.ID, s.Sets...)
	ex := exchange.New(exchange.Config{
		ClusterID: s.ID, Namespace: s.Namespace, Local: local, Broker: remote, Log: slog.New(slog.DiscardHandler),
		Identity:    func() (exchange.Identity, error) { return identity, nil },
		Account:     types.NamespacedName{Namespace: s.Base, Name: broker.MemberName(s.ID)},
		NamespaceOf: func(set string) string { return broker.NamespaceIn(s.Base, set) },
		Complete: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ex.Run(ctx) }()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		r := childReport{}
		switch in.Text() {
		case "complete":
			for ex.Status().Digest == "" {
				<-changed
			}
			r.Cables = plannedCables(t, local, s, ex.Status())
		case "settled":
			for ex.Healthy() != nil || ex.Status().LastSync.IsZero() {
				time.Sleep(10 * time.Millisecond)
			}
		case "idle":
			before := cpuTime(t)
			from := time.Now()
			time.Sleep(s.Idle)
			r.CPUPercent = 100 * (cpuTime(t) - before) / time.Since(from).Seconds()
		}
		r.Seconds = time.Since(began).Seconds()
		r.Connections = connections.peak()
		var m runtime.MemStats
		if in.Text() == "idle" {
			runtime.GC()
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		r.HeapKiB = float64(m.HeapAlloc) / (1 << 10)
		r.PeakMiB = peakMiB(t)
		text, _ := json.Marshal(r)
		fmt.Printf("report %s\n", text)
	}
	cancel()
	require.NoError(t, <-done)
}

// plannedCables plans as a gateway does from what its cluster holds, and returns the number of
// cables.
func plannedCables(t *testing.T, local *rest.Config, s *childSite, status exchange.Status) int {
	c := kubetest.Client(t, local)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gw", Labels: map[string]string{submarinerv1.GatewayNodeLabel: "true"}},
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.30.0.1"}}
	objs := []client.Object{
		&v1alpha1.Submariner{
			Spec: v1alpha1.SubmarinerSpec{ClusterID: s.ID, ClusterCIDR: "10.15.0.0/16", ServiceCIDR: "10.14.0.0/16"},
		},
		node,
	}
	clusters := &submarinerv1.ClusterList{}
	endpoints := &submarinerv1.EndpointList{}
	policies := &v1alpha1.CablePoliciesList{}
	for _, list := range []client.ObjectList{clusters, endpoints, policies} {
		require.NoError(t, c.List(t.Context(), list, client.InNamespace(s.Namespace)))
	}
	for i := range clusters.Items {
		objs = append(objs, &clusters.Items[i])
	}
	for i := range endpoints.Items {
		objs = append(objs, &endpoints.Items[i])
	}
	for i := range policies.Items {
		objs = append(objs, &policies.Items[i])
	}
	snap := role.NewSnapshot("gw", objs...)
	snap.Now = time.Now()
	snap.Facts = submarinerv1.NodeFacts{PrivateIP: "172.30.0.1", Device: "eth0", MTU: 1500, PodIP: "10.15.1.1"}
	snap.Standing = active("gw")
	snap.Standing.Speaker = true
	snap.Book = policy.Compile(role.List[*v1alpha1.CablePolicies](snap), snap.Makers())
	snap.PoliciesDigest = status.Digest
	snap.ClusterSets = status.Sets
	p, err := roles.Gateway().Plan(snap)
	require.NoError(t, err)
	for _, refused := range mesh.PlanOf(p).Mesh.Cables.Refused {
		t.Log(refused)
	}
	return len(mesh.PlanOf(p).Mesh.Cables.Wanted)
}

// openConnections counts the connections of a client.
type openConnections struct {
	sync.Mutex
	open []*tls.Conn
	most int
}

// peak returns how many were open at most at a time.
func (o *openConnections) peak() int {
	o.Lock()
	defer o.Unlock()
	return o.most
}

// add adds a new connection and removes closed ones.
func (o *openConnections) add(c *tls.Conn) {
	o.Lock()
	defer o.Unlock()
	o.open = slices.DeleteFunc(append(o.open, c), func(c *tls.Conn) bool {
		raw, err := c.NetConn().(*net.TCPConn).SyscallConn()
		return err != nil || raw.Control(func(uintptr) {}) != nil
	})
	o.most = max(o.most, len(o.open))
}

func countConnections(c *rest.Config) *openConnections {
	o := &openConnections{}
	transport := c.Transport.(*http.Transport)
	dial := transport.DialTLSContext
	transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			o.add(conn.(*tls.Conn))
		}
		return conn, err
	}
	return o
}

func cpuTime(t *testing.T) float64 {
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func peakMiB(t *testing.T) float64 {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	kib, err := strconv.ParseFloat(string(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)[1]), 64)
	require.NoError(t, err)
	return kib / (1 << 10)
}
