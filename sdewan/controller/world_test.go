package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
	"subctl/internal/nstest"
	"subctl/sdewan"
	cnfrest "subctl/sdewan/rest"
	"subctl/sdewan/rest/openwrttest"
)

// TestMain fails if a controller leaves a goroutine behind. Those of controller-runtime's event
// broadcasters do not count: a manager that ends while it loses its lease leaves some.
func TestMain(m *testing.M) {
	const broadcaster = "k8s.io/apimachinery/pkg/watch.(*Broadcaster).loop"
	goleak.VerifyTestMain(kubetest.Tests{M: m}, goleak.IgnoreTopFunction(broadcaster))
}

const (
	password = "root1"
	port     = 18443 // of all boxes, each on an address of its own
	patience = 3 * time.Minute
)

// world is a namespace of a real API server, whose Deployments and ReplicaSets are real; the pods
// are boxes, and the world is their kubelet.
type world struct {
	testing.TB
	config    *rest.Config // of the controller, with the rights of Rules and no others
	server    *kubetest.Server
	client    client.Client
	namespace string
	authority *openwrttest.Authority
	log       *nstest.Buffer

	mu    sync.Mutex
	boxes map[string]*pod // by name of the pod
	net   int             // the world's part of 127.0.0.0/8
	last  int
}

// pod is a running pod.
type pod struct {
	*openwrttest.Box
	name, ip string
	stop     func() // of the server
}

var worlds struct {
	sync.Mutex
	last int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, kubetest.Shared(t))
}

func newWorldOn(t testing.TB, s *kubetest.Server) *world {
	t.Helper()
	s.InstallSDEWAN(t)
	worlds.Lock()
	worlds.last++
	w := &world{
		TB:        t,
		server:    s,
		client:    s.Client(t),
		authority: openwrttest.NewAuthority(t),
		boxes:     map[string]*pod{},
		net:       1 + (os.Getpid()+worlds.last)%250,
		log:       &nstest.Buffer{},
	}
	worlds.Unlock()
	w.namespace = s.Namespace(t, "cnfs")
	w.create(&corev1.Secret{ObjectMeta: w.named("account"), StringData: map[string]string{"password": password + "\n"}})
	w.create(&corev1.Secret{ObjectMeta: w.named("cert"), Data: map[string][]byte{"ca.crt": w.authority.PEM}})
	w.config = s.As(w.token())
	w.config.QPS = -1
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
	return w
}

// token returns the token of a ServiceAccount that has the rights of Rules.
func (w *world) token() string {
	w.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: w.named("controller")}
	w.create(account)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Rules: Rules()}
	w.create(role)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name: w.namespace,
		}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.namespace},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: w.namespace}},
	}
	w.create(binding)
	w.Cleanup(func() {
		ctx := context.WithoutCancel(w.Context())
		_ = w.client.Delete(ctx, binding)
		_ = w.client.Delete(ctx, role)
	})
	request := &authenticationv1.TokenRequest{}
	require.NoError(w, w.client.SubResource("token").Create(w.Context(), account, request))
	return request.Status.Token
}

func (w *world) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: w.namespace}
}

func (w *world) create(o client.Object) {
	w.Helper()
	require.NoError(w, w.client.Create(w.Context(), o))
}

const networks = `{"type":"ovn4nfv","interface":[{"interface":"net0","name":"lan"},{"interface":"net1","name":"wan1"},{"interface":"net2","name":"wan2"}]}`

// deployment returns a CNF with the label purpose.
func (w *world) deployment(name, purpose string, replicas int32) *appsv1.Deployment {
	podLabels := map[string]string{
		"app":               name,
		sdewan.PurposeLabel: purpose,
		sdewan.AccountLabel: "account",
		sdewan.CertLabel:    "cert",
	}
	d := &appsv1.Deployment{ObjectMeta: w.named(name)}
	d.Labels = map[string]string{sdewan.PurposeLabel: purpose}
	d.Spec.Replicas = &replicas
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	d.Spec.Template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      podLabels,
			Annotations: map[string]string{sdewan.NetworksAnnotation: networks},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "cnf", Image: "cnf"}}},
	}
	return d
}

// cnf creates a CNF and waits until its pods are ready.
func (w *world) cnf(name string, replicas int32) []*pod {
	w.Helper()
	w.create(w.deployment(name, name, replicas))
	var out []*pod
	w.eventually(func() error {
		if out = w.pods(name); len(out) != int(replicas) {
			return fmt.Errorf("%d pods", len(out))
		}
		return nil
	})
	return out
}

// pods does what a kubelet does: it starts a box for each pod of a Deployment that has none. It
// returns the pods that exist.
func (w *world) pods(app string) []*pod {
	w.Helper()
	var list corev1.PodList
	require.NoError(w,
		w.client.List(w.Context(), &list, client.InNamespace(w.namespace), client.MatchingLabels{"app": app}))
	var out []*pod
	for i := range list.Items {
		p := &list.Items[i]
		if !p.DeletionTimestamp.IsZero() {
			continue
		}
		w.mu.Lock()
		b := w.boxes[p.Name]
		w.mu.Unlock()
		if b == nil {
			b = w.start(p.Name)
			w.setReady(p.Name, true)
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b *pod) int { return strings.Compare(a.name, b.name) })
	return out
}

// start starts the box of a pod, without objects.
func (w *world) start(name string) *pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	p := &pod{
		Box:  openwrttest.New(password),
		name: name,
		ip:   fmt.Sprintf("127.%d.%d.%d", w.net, w.last/250, 1+w.last%250),
	}
	_, p.stop = openwrttest.Serve(w, fmt.Sprintf("%s:%d", p.ip, port),
		w.authority.Certificate(w, "*."+w.namespace+".pod.cluster.local"), p.Box)
	w.boxes[name] = p
	return p
}

// setReady sets the status of a pod.
func (w *world) setReady(name string, ready bool) {
	w.Helper()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p := w.boxes[name]
	require.NoError(w, retryConflict(func() error {
		o := &corev1.Pod{}
		if err := w.client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, o); err != nil {
			return err
		}
		o.Status.Phase = corev1.PodRunning
		o.Status.PodIP = p.ip
		o.Status.PodIPs = []corev1.PodIP{{IP: p.ip}}
		now := metav1.Now()
		o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: now}}
		return w.client.Status().Update(w.Context(), o)
	}))
}

// restarted tells the API server that the container of a pod has been restarted.
func (w *world) restarted(name string, count int32) {
	w.Helper()
	require.NoError(w, retryConflict(func() error {
		o := &corev1.Pod{}
		if err := w.client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, o); err != nil {
			return err
		}
		o.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "cnf", RestartCount: count, ContainerID: fmt.Sprint("containerd://", count)},
		}
		return w.client.Status().Update(w.Context(), o)
	}))
}

// kill deletes a pod, and stops its box.
func (w *world) kill(p *pod) {
	w.Helper()
	p.stop()
	require.NoError(w,
		w.client.Delete(w.Context(), &corev1.Pod{ObjectMeta: w.named(p.name)}, client.GracePeriodSeconds(0)))
}

func retryConflict(f func() error) error {
	for {
		if err := f(); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// run starts the controller, and returns what ends it.
func (w *world) run() (stop func()) {
	w.Helper()
	return w.runWith(Options{})
}

func (w *world) runWith(o Options) (stop func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	o.Port = port
	o.Log = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if o.RetryUntil == 0 {
		o.RetryFrom = 50 * time.Millisecond
		o.RetryUntil = time.Second
	}
	mgr := newManager(w, w.config, o.Log, w.namespace)
	require.NoError(w, Add(ctx, mgr, o))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(w, <-done)
		})
	}
	w.Cleanup(stop)
	return stop
}

func newManager(t testing.TB, c *rest.Config, log *slog.Logger, namespaces ...string) manager.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(Config(c), managerOptions(t, log, namespaces...))
	require.NoError(t, err)
	return mgr
}

func managerOptions(t testing.TB, log *slog.Logger, namespaces ...string) manager.Options {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	caches := Cache()
	for _, ns := range namespaces {
		if caches.DefaultNamespaces == nil {
			caches.DefaultNamespaces = map[string]cache.Config{}
		}
		caches.DefaultNamespaces[ns] = cache.Config{}
	}
	return manager.Options{
		Scheme: scheme, Cache: caches, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Logger: logr.FromSlogHandler(log.Handler()), Controller: config.Controller{SkipNameValidation: new(true)},
	}
}

// eventually waits until f returns nil.
func (w *world) eventually(f func() error) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// never checks for a while that f returns nil.
func (w *world) never(d time.Duration, f func() error) {
	w.Helper()
	for deadline := time.Now().Add(d); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		require.NoError(w, f())
	}
}

// meta returns the metadata of a rule.
func (w *world) meta(purpose, name string) metav1.ObjectMeta {
	m := w.named(name)
	m.Labels = map[string]string{sdewan.PurposeLabel: purpose}
	return m
}

func (w *world) policy(purpose, name string) *batch.Mwan3Policy {
	return &batch.Mwan3Policy{
		ObjectMeta: w.meta(purpose, name),
		Spec: batch.Mwan3PolicySpec{Members: []batch.Mwan3PolicyMember{
			{Network: "wan1", Metric: "1", Weight: "2"}, {Network: "wan2", Metric: "1", Weight: "3"},
		}},
	}
}

func (w *world) rule(purpose, name, policy, port string) *batch.Mwan3Rule {
	r := &batch.Mwan3Rule{
		ObjectMeta: w.meta(purpose, name),
		Spec:       batch.Mwan3RuleSpec{Policy: batch.ObjectName(policy), Proto: "tcp"},
	}
	set(&r.Spec.DestPort, port)
	return r
}

// set sets a field that has a type of its own.
func set[T ~string](field *T, to string) { *field = T(to) }

// get reads a rule.
func (w *world) get(r sdewan.Rule) error {
	return w.client.Get(w.Context(), client.ObjectKeyFromObject(r.(client.Object)), r.(client.Object))
}

// inSync waits until rules are in sync, and reads them.
func (w *world) inSync(rules ...sdewan.Rule) {
	w.Helper()
	for _, r := range rules {
		w.eventually(func() error {
			if err := w.get(r); err != nil {
				return err
			}
			if s := r.RuleStatus(); !s.InSync || s.ObservedGeneration != r.GetGeneration() || s.AppliedVersion == "" ||
				s.AppliedTime == nil {
				return fmt.Errorf("%s is not in sync: %+v", r.GetName(), *s)
			}
			return nil
		})
		require.Contains(w, r.GetFinalizers(), Finalizer)
	}
}

// waits waits until a rule is not in sync for a reason, and returns the message.
func (w *world) waits(r sdewan.Rule, reason string) (message string) {
	w.Helper()
	w.eventually(func() error {
		if err := w.get(r); err != nil {
			return err
		}
		s := r.RuleStatus()
		if s.InSync || s.AppliedVersion != "" || len(s.Conditions) != 1 || s.Conditions[0].Reason != reason {
			return fmt.Errorf("%s: %+v", r.GetName(), *s)
		}
		message = s.Conditions[0].Message
		return nil
	})
	return message
}

// gone waits until a rule does not exist any more.
func (w *world) gone(r sdewan.Rule) {
	w.Helper()
	w.eventually(func() error {
		if err := w.get(r); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s is still there (%v): %+v", r.GetName(), err, r.RuleStatus())
		}
		return nil
	})
}

func (w *world) delete(o client.Object) {
	w.Helper()
	require.NoError(w, w.client.Delete(w.Context(), o))
}

// holds waits until the objects of a collection that are in effect on a pod are these, in this
// order.
func (w *world) holds(p *pod, l *cnfrest.Collection, names ...string) {
	w.Helper()
	w.eventually(func() error {
		if has := p.EffectiveNames(l); !slices.Equal(has, names) {
			return fmt.Errorf("%s has %s %q, not %q", p.name, l, has, names)
		}
		return nil
	})
}

// event waits for an Event with a reason, and returns its note.
func (w *world) event(reason string) (note string) {
	w.Helper()
	w.eventually(func() error {
		var list corev1.EventList
		if err := w.client.List(w.Context(), &list, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, e := range list.Items {
			if e.Reason == reason {
				note = e.Message
				return nil
			}
			seen[e.Reason] = true
		}
		return fmt.Errorf("no Event %s, but %q", reason, slices.Collect(maps.Keys(seen)))
	})
	return note
}

func netipAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

func twoPods(pods []*pod) error {
	if len(pods) != 2 {
		return fmt.Errorf("%d pods", len(pods))
	}
	return nil
}
