package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"subctl/api/crds"
	"subctl/internal/kube"
)

// startTimeout is fifty times the time that a start takes on two idle cores: many tests may start
// at once.
const startTimeout = 5 * time.Minute

// Server is an API server with its etcd and controllers.
type Server struct {
	lab, dir string
	port     string // 0 before the first start
	process  *exec.Cmd
	exited   chan struct{}
	config   *rest.Config
}

func start(lab string) (*Server, error) {
	dir, err := os.MkdirTemp("", "kubetest-")
	if err != nil {
		return nil, err
	}
	s := &Server{lab: lab, dir: dir, port: "0"}
	if err := s.run(); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// run starts the process and waits until it is ready.
func (s *Server) run() error {
	ready := filepath.Join(s.dir, "ready")
	_ = os.Remove(ready) // from an earlier start
	output, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	s.process = exec.Command(s.lab, "apiserver", "--dir", s.dir, "--port", s.port)
	s.process.Stdout = output
	s.process.Stderr = output
	if err := s.process.Start(); err != nil {
		return fmt.Errorf("starting an API server: %w", err)
	}
	s.exited = make(chan struct{})
	go func(p *exec.Cmd, exited chan struct{}) {
		_ = p.Wait()
		close(exited)
	}(s.process, s.exited)
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		select {
		case <-s.exited:
			return fmt.Errorf("the API server ended before it was ready: %s", s.logTail())
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the API server is not ready after %s: %s", startTimeout, s.logTail())
		}
	}
	s.config, err = clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the API server's kubeconfig: %w", err)
	}
	s.config.QPS = -1 // no limit: tests do not wait
	u, err := url.Parse(s.config.Host)
	if err != nil {
		return fmt.Errorf("reading the API server's kubeconfig: %w", err)
	}
	s.port = u.Port()
	return nil
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

func (s *Server) logTail() string {
	b, _ := os.ReadFile(s.logFile())
	lines := strings.Split(string(bytes.TrimSpace(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (s *Server) Kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// PID returns the ID of the process of the API server, which etcd and the controllers are part of.
func (s *Server) PID() int { return s.process.Process.Pid }

// Config returns the administrator's configuration for clients.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.config) }

// As returns a configuration for clients that authenticate with a bearer token. They share no
// connection with others: Go's HTTP server closes a connection with very many cancelled requests.
func (s *Server) As(token string) *rest.Config {
	c := rest.AnonymousClientConfig(s.config)
	c.BearerToken = token
	c.Dial = (&net.Dialer{}).DialContext
	return c
}

// Client returns a client for config, such as the configuration of Server.Config. It repeats a
// Create after a conflict with a ResourceQuota, which occurs if others create objects in the
// namespace at the same time.
func Client(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	scheme, err := kube.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return kube.Settled(func() error { return c.Create(ctx, o, options...) })
		},
	})
}

// Client returns a client of the administrator.
func (s *Server) Client(t testing.TB) client.Client {
	t.Helper()
	return Client(t, s.config)
}

// Namespace creates a namespace for the test, whose name starts with prefix, and deletes
// it when the test has ended.
func (s *Server) Namespace(t testing.TB, prefix string) string {
	t.Helper()
	c := s.Client(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), ns) })
	return ns.Name
}

// InstallCRDs applies our CustomResourceDefinitions and waits until they are served.
func (s *Server) InstallCRDs(t testing.TB) {
	t.Helper()
	s.install(t, crds.All)
}

// InstallSDEWAN applies the CustomResourceDefinitions of SD-EWAN and waits until they are served.
func (s *Server) InstallSDEWAN(t testing.TB) {
	t.Helper()
	s.install(t, crds.SDEWAN)
}

func (s *Server) install(t testing.TB, definitions func() ([]*apiextensionsv1.CustomResourceDefinition, error)) {
	t.Helper()
	c := s.Client(t)
	all, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		if err := kube.Apply(t.Context(), c, kube.FieldOwner, crd); err != nil {
			t.Fatal(err)
		}
	}
	for _, crd := range all {
		for !established(crd) {
			time.Sleep(10 * time.Millisecond)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// Stop kills the server, as an outage does. Its data is kept for Restart. A signal that
// the server can handle would make it remove the data.
func (s *Server) Stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill()
	<-s.exited
	s.process = nil
}

// Restart starts a stopped server again, at the same address.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) remove() {
	s.Stop()
	_ = os.RemoveAll(s.dir)
}
