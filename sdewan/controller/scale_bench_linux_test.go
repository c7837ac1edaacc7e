package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kubetest"
	"subctl/internal/measure"
	"subctl/internal/nstest"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

const (
	scaleCNFs  = 100
	scaleRules = 100 // of each CNF
	// scaleOf is set in the process of the controller: the path of a kubeconfig.
	scaleOf = "SUBCTL_SDEWAN_SCALE_OF"
)

// BenchmarkScale measures the controller, in a process of its own, with 10,000 rules on 100 CNFs of
// two pods each. Time begins when the process starts, with all objects in the API server and all
// pods ready, and ends when all CNFs hold all rules and the status of each rule says so. The API
// server, its controllers and all CNFs run on the same machine, and take most of the time: see the
// rows with their CPU time.
func BenchmarkScale(b *testing.B) {
	for b.Loop() {
		w := &scaled{world: newWorldOn(b, kubetest.Start(b))}
		w.measure()
	}
}

// scaled is a world with many CNFs.
type scaled struct {
	*world
	rules cache.Cache
}

func cnfName(i int) string { return fmt.Sprintf("cnf-%02d", i) }

func (w *scaled) measure() {
	w.Helper()
	start := time.Now()
	w.atOnce(scaleCNFs, func(i int) { w.create(w.deployment(cnfName(i), cnfName(i), 2)) })
	w.atOnce(scaleCNFs, func(i int) {
		w.eventually(func() error { return twoPods(w.pods(cnfName(i))) })
		for _, r := range w.scaleRules(cnfName(i)) {
			w.create(r.(client.Object))
		}
	})
	w.watch()
	w.Logf("created in %s", time.Since(start))

	server := measure.CPUOf(w, w.server.PID())
	test := measure.CPUOf(w, os.Getpid())
	first := w.process()
	fromNothing := w.until(func() error { return w.all() })
	cpu := []measure.Row{
		measure.Info(
			"SD-EWAN: the same: all in sync from nothing, CPU time of the API server, etcd and Kubernetes' controllers",
			measure.Values{measure.CPUOf(w, w.server.PID()) - server}, "s"),
		measure.Info("SD-EWAN: the same: all in sync from nothing, CPU time of the controller",
			measure.Values{measure.CPUOf(w, first.Process.Pid)}, "s"),
		measure.Info("SD-EWAN: the same: all in sync from nothing, CPU time of the CNFs and the test",
			measure.Values{measure.CPUOf(w, os.Getpid()) - test}, "s"),
	}
	w.Logf("from nothing: %s: %+v", fromNothing, cpu)
	changed := measure.Values{}
	change := func(cnf string, to int) float64 {
		r := w.edit(cnf+"-rule-01", strconv.Itoa(to))
		return w.until(func() error {
			for _, p := range w.of(cnf) {
				if p.Field(rest.Rules, r.Name, "dest_port") != string(r.Spec.DestPort) {
					return fmt.Errorf("%s is not changed", p.name)
				}
			}
			var is batch.Mwan3Rule
			if err := w.rules.Get(w.Context(), client.ObjectKeyFromObject(r), &is); err != nil || !is.Status.InSync ||
				is.Status.ObservedGeneration != r.Generation {
				return fmt.Errorf("not in sync (%w)", err)
			}
			return nil
		}).Seconds()
	}
	for i := range measure.Times(20) {
		changed = append(changed, change(cnfName(i), 1000+i))
	}
	// One CNF is dead, and has work to do: its pods are ready, as far as anybody knows, and never
	// answer. Nothing is measured while its hundred statuses change.
	turn := 2000
	side := func(fail http.HandlerFunc, inSync bool) float64 {
		for _, p := range w.of(cnfName(scaleCNFs - 1)) {
			p.Fail(fail)
		}
		w.touch(&turn)
		w.until(func() error { return w.allOf(cnfName(scaleCNFs-1), inSync) })
		var values measure.Values
		for range 5 {
			w.touch(&turn)
			values = append(values, change(cnfName(turn%(scaleCNFs-1)), turn))
		}
		return values.Median()
	}
	dead := measure.Compare(measure.Times(4), func() float64 {
		return side(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false)
	}, func() float64 { return side(nil, true) })
	for _, p := range w.of(cnfName(scaleCNFs - 1)) {
		p.Fail(nil)
	}
	w.until(func() error { return w.allOf(cnfName(scaleCNFs-1), true) })
	memory := first.stop()
	w.atOnce(scaleCNFs, func(i int) {
		r := w.edit(cnfName(i)+"-rule-02", "3000")
		w.eventually(func() error {
			var is batch.Mwan3Rule
			if err := w.rules.Get(w.Context(), client.ObjectKeyFromObject(r), &is); err != nil ||
				is.Generation != r.Generation {
				return fmt.Errorf("the change is not seen (%w)", err)
			}
			return nil
		})
	})
	second := w.process()
	restarted := w.until(func() error { return w.all() })
	memory = max(memory, second.stop())
	measure.Record(w, append(
		cpu,
		measure.AtMost("SD-EWAN: 10,000 rules on 100 CNFs of 2 pods: all in sync from nothing",
			measure.Values{fromNothing.Seconds()}, 60, "s"),
		measure.AtMost(
			"SD-EWAN: the same: controller restarted, and one rule of each CNF changed meanwhile: all in sync",
			measure.Values{restarted.Seconds()}, 30, "s"),
		measure.AtMost("SD-EWAN: the same: one rule changed", changed, 1, "s"),
		measure.AtMost("SD-EWAN: the same: controller's peak memory", measure.Values{memory / (1 << 20)}, 256, "MiB"),
		measure.AtMost("SD-EWAN: the same: one rule changed while another CNF is dead, of that while none is",
			dead.Percent, 115, "%"),
	)...)
}

// watch begins to watch the rules. To ask the API server for 10,000 of them again and again would
// take the time that is measured.
func (w *scaled) watch() {
	w.Helper()
	rules, err := cache.New(w.server.Config(), cache.Options{
		Scheme:                       kubetest.Scheme(w),
		DefaultNamespaces:            map[string]cache.Config{w.namespace: {}},
		DefaultTransform:             slim,
		DefaultUnsafeDisableDeepCopy: new(true),
	})
	require.NoError(w, err)
	ctx, stop := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	for _, k := range sdewan.Kinds() {
		_, err := rules.GetInformer(ctx, k.New().(client.Object), cache.BlockUntilSynced(false))
		require.NoError(w, err)
	}
	go func() { ended <- rules.Start(ctx) }()
	w.Cleanup(func() {
		stop()
		require.NoError(w, <-ended)
	})
	require.True(w, rules.WaitForCacheSync(ctx))
	w.rules = rules
}

// touch changes a rule of the last CNF.
func (w *scaled) touch(turn *int) {
	*turn++
	w.edit(cnfName(scaleCNFs-1)+"-rule-01", strconv.Itoa(*turn))
}

// edit changes the port of a rule.
func (w *scaled) edit(name, port string) *batch.Mwan3Rule {
	w.Helper()
	r := w.rule("", name, "", "")
	require.NoError(w, retryConflict(func() error {
		if err := w.get(r); err != nil {
			return err
		}
		set(&r.Spec.DestPort, port)
		return w.client.Update(w.Context(), r)
	}))
	return r
}

// allOf reports whether all mwan3 rules of a CNF are in sync, or none is.
func (w *scaled) allOf(cnf string, inSync bool) error {
	var list batch.Mwan3RuleList
	if err := w.rules.List(w.Context(), &list, client.InNamespace(
		w.namespace), client.MatchingLabels{sdewan.PurposeLabel: cnf}); err != nil {
		return err
	}
	for _, r := range list.Items {
		if r.Status.InSync != inSync || inSync && r.Status.ObservedGeneration != r.Generation {
			time.Sleep(20 * time.Millisecond)
			return fmt.Errorf("%s: %+v", r.Name, r.Status)
		}
	}
	return nil
}

// of returns the pods of a CNF, without asking the API server.
func (w *world) of(cnf string) (out []*pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, p := range w.boxes {
		if len(name) > len(cnf) && name[:len(cnf)+1] == cnf+"-" {
			out = append(out, p)
		}
	}
	return out
}

func (w *scaled) scaleRules(cnf string) []sdewan.Rule {
	var out []sdewan.Rule
	named := func(format string, i int) string { return cnf + "-" + fmt.Sprintf(format, i) }
	for i := range 5 {
		zone := &batch.FirewallZone{
			ObjectMeta: w.meta(cnf, named("z-%d", i)),
			Spec:       batch.FirewallZoneSpec{Network: []batch.NetworkName{"wan1"}},
		}
		dnat := &batch.FirewallDNAT{ObjectMeta: w.meta(cnf, named("dnat-%d", i))}
		dnat.Spec.Src = batch.ZoneName(zone.Name)
		dnat.Spec.DestIP = "10.0.0.1"
		dnat.Spec.DestPort = "80"
		dnat.Spec.SrcDPort = "8080"
		out = append(out, w.policy(cnf, named("policy-%d", i)), zone, dnat)
	}
	for i := range 45 {
		out = append(out, w.rule(cnf, named("rule-%02d", i), named("policy-%d", 0), strconv.Itoa(1+i)))
	}
	for i := range scaleRules - len(out) {
		f := &batch.FirewallRule{ObjectMeta: w.meta(cnf, named("fw-%02d", i))}
		f.Spec.Src = batch.ZoneName(named("z-%d", 0))
		f.Spec.Proto = "tcp"
		f.Spec.Target = "REJECT"
		set(&f.Spec.DestPort, strconv.Itoa(1+i))
		out = append(out, f)
	}
	return out
}

// atOnce calls f for each number, several at a time.
func (w *scaled) atOnce(n int, f func(int)) {
	slots := make(chan struct{}, 8)
	var group sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		group.Go(func() { defer func() { <-slots }(); f(i) })
	}
	group.Wait()
}

// until returns how long it takes until f returns nil.
func (w *scaled) until(f func() error) time.Duration {
	w.Helper()
	start := time.Now()
	for {
		err := f()
		if err == nil {
			return time.Since(start)
		}
		if time.Since(start) > 5*time.Minute {
			w.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// all reports whether all CNFs hold all rules and all rules are in sync.
func (w *scaled) all() error {
	w.mu.Lock()
	boxes := make([]*pod, 0, len(w.boxes))
	for _, p := range w.boxes {
		boxes = append(boxes, p)
	}
	w.mu.Unlock()
	for _, p := range boxes {
		n := 0
		for _, l := range collections() {
			n += len(p.EffectiveNames(l))
		}
		if n != scaleRules {
			time.Sleep(100 * time.Millisecond)
			return fmt.Errorf("%s has %d rules", p.name, n)
		}
	}
	for _, k := range sdewan.Kinds() {
		list := k.NewList().(client.ObjectList)
		if err := w.rules.List(w.Context(), list, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if s := o.(sdewan.Rule); !s.RuleStatus().InSync || s.RuleStatus().ObservedGeneration != s.GetGeneration() {
				return fmt.Errorf("%s is not in sync: %+v", s.GetName(), *s.RuleStatus())
			}
			return nil
		})
		if err != nil {
			time.Sleep(200 * time.Millisecond)
			return err
		}
	}
	return nil
}

// controllerProcess is a controller in a process of its own.
type controllerProcess struct {
	*exec.Cmd
	w   *scaled
	log *nstest.Buffer
}

// process starts a controller.
func (w *scaled) process() *controllerProcess {
	w.Helper()
	p := &controllerProcess{exec.Command(os.Args[0], "-test.run", "^TestScaleProcess$", "-test.v"), w, &nstest.Buffer{}}
	p.Env = append(os.Environ(), scaleOf+"="+w.server.Kubeconfig())
	p.Stdout, p.Stderr = p.log, p.log
	require.NoError(w, p.Start())
	w.Cleanup(func() {
		_ = p.Process.Kill() // if the benchmark has failed before it has stopped the process
		if w.Failed() {
			w.Log(p.log.String())
		}
	})
	return p
}

// stop ends the process, and returns its peak memory in bytes.
func (p *controllerProcess) stop() float64 {
	p.w.Helper()
	require.NoError(p.w, p.Process.Signal(syscall.SIGTERM))
	require.NoError(p.w, p.Wait(), p.log.String())
	m := regexp.MustCompile(`peak RSS (\d+)`).FindStringSubmatch(p.log.String())
	require.NotNil(p.w, m, p.log.String())
	peak, err := strconv.ParseFloat(m[1], 64)
	require.NoError(p.w, err)
	return peak
}

// TestScaleProcess is the process that BenchmarkScale measures.
func TestScaleProcess(t *testing.T) {
	kubeconfig := os.Getenv(scaleOf)
	if kubeconfig == "" {
		t.Skip("only in the process that BenchmarkScale starts")
	}
	ctx, stop := signal.NotifyContext(context.WithoutCancel(t.Context()), syscall.SIGTERM)
	defer stop()
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	mgr := newManager(t, c, log)
	require.NoError(t, Add(t.Context(), mgr, Options{Log: log, Port: port}))
	require.NoError(t, mgr.Start(ctx))
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, m)
	kib, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	t.Logf("peak RSS %d", kib<<10)
}
