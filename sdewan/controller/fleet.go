package controller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/secret"
	"subctl/sdewan"
	"subctl/sdewan/controller/fair"
	restclient "subctl/sdewan/rest/client"
)

// fleet has a client and a memory for each pod.
type fleet struct {
	secrets *secrets
	o       Options
	large   *fair.Slots // for pods that return much

	mu      sync.Mutex
	members map[types.NamespacedName]map[types.UID]*member // by CNF
}

func newFleet(reader client.Reader, o Options) *fleet {
	return &fleet{
		secrets: newSecrets(reader, o.now),
		o:       o,
		large:   fair.NewSlots(maxLarge),
		members: map[types.NamespacedName]map[types.UID]*member{},
	}
}

// member is a pod, with its containers as they run.
type member struct {
	*memory
	incarnation string
	client      *restclient.Client
	credentials [sha256.Size]byte
	read        time.Time // after which the Secrets were read
	large       bool      // whether it has a slot of fleet.large
	complete    bool      // whether it has had all its rules once
}

// Many pods that return much would fill the memory: at most maxLarge of them are synced at the same
// time. Those that return less than 128 KiB do not wait.
const maxLarge = 8

var errLarge = errors.New("the CNF has many objects, and those of other CNFs are being read: it is read later")

// room is called by a member's client before it reads much.
func (f *fleet) room(ctx context.Context, m *member, namespace string) error {
	if m.large {
		return nil
	}
	if f.large.Take(ctx, namespace) != nil {
		return errLarge
	}
	m.large = true
	return nil
}

// done ends the sync of a member. By then, nothing that its pod returned may be left in memory but
// what synced has.
func (f *fleet) done(m *member, namespace string) {
	if m.large {
		f.large.Give(namespace)
	}
	m.large = false
}

// of returns the member for a pod of a CNF. Its memory is empty if the containers of the pod have
// been restarted: then so is the CNF. Only one caller at a time may use the memory.
func (f *fleet) of(ctx context.Context, cnf types.NamespacedName, p *corev1.Pod) (*member, *problem) {
	f.mu.Lock()
	if f.members[cnf] == nil {
		f.members[cnf] = map[types.UID]*member{}
	}
	m := f.members[cnf][p.UID]
	if m == nil || m.incarnation != incarnation(p) {
		if m != nil && m.client != nil {
			m.client.Close()
		}
		m = &member{memory: newMemory(), incarnation: incarnation(p)}
		f.members[cnf][p.UID] = m
	}
	f.mu.Unlock()
	if m.client != nil && f.o.now().Sub(m.read) < credentialsFor {
		return m, nil
	}
	o, since, wrong := f.credentials(ctx, p)
	if wrong != nil {
		f.distrust(m, p)
		return m, wrong
	}
	if sum := o.digest(); m.client == nil || m.credentials != sum {
		o.Large = func(ctx context.Context) error { return f.room(ctx, m, cnf.Namespace) }
		c, err := restclient.New(o.Options)
		if err != nil {
			f.distrust(m, p)
			return m, &problem{
				NoCredentials,
				fmt.Sprintf("Secrets %s and %s of the pods: %s", p.Labels[sdewan.AccountLabel],
					p.Labels[sdewan.CertLabel], oneLine(err)),
			}
		}
		f.mu.Lock() // for the controller of statuses
		if m.client != nil {
			m.client.Close()
		}
		m.client = c
		m.credentials = sum
		f.mu.Unlock()
	}
	m.read = since
	return m, nil
}

// client returns the client of a pod; nil if no rule has been applied to the pod yet.
func (f *fleet) client(cnf types.NamespacedName, pod types.UID) *restclient.Client {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[cnf][pod]; m != nil {
		return m.client
	}
	return nil
}

// keep forgets all pods of a CNF but these.
func (f *fleet) keep(cnf types.NamespacedName, pods []*corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, m := range f.members[cnf] {
		if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == uid }) {
			if m.client != nil {
				m.client.Close()
			}
			delete(f.members[cnf], uid)
		}
	}
	if len(f.members[cnf]) == 0 {
		delete(f.members, cnf)
	}
}

// close closes all connections.
func (f *fleet) close() {
	f.mu.Lock()
	cnfs := slices.Collect(maps.Keys(f.members))
	f.mu.Unlock()
	for _, cnf := range cnfs {
		f.keep(cnf, nil)
	}
}

// incarnation changes with the pod's address, and whenever a container of the pod starts.
func incarnation(p *corev1.Pod) string {
	parts := []string{string(p.UID), p.Status.PodIP}
	for _, c := range p.Status.ContainerStatuses {
		parts = append(parts, c.Name, strconv.Itoa(int(c.RestartCount)), c.ContainerID)
	}
	return strings.Join(parts, " ")
}

// access has the options with which a pod is reached.
type access struct{ restclient.Options }

func (a access) digest() [sha256.Size]byte {
	h := sha256.New()
	for _, b := range [][]byte{[]byte(a.Address), []byte(a.Name), a.CA, a.Password} {
		fmt.Fprintf(h, "%d ", len(b))
		h.Write(b)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// credentials reads the Secrets that the labels of a pod name. They are as they were after a time.
func (f *fleet) credentials(ctx context.Context, p *corev1.Pod) (access, time.Time, *problem) {
	wrong := func(format string, args ...any) (access, time.Time, *problem) {
		return access{}, time.Time{}, &problem{NoCredentials, fmt.Sprintf(format, args...)}
	}
	var out [2][]byte
	since := f.o.now()
	for i, c := range credentialsOf(p) {
		if c.secret.Name == "" {
			return wrong(
				"pod %s has no label %s: set it in the template of the Deployment to the name of a Secret with the key %s, %s",
				p.Name, c.label, c.key, c.what)
		}
		value, read, err := f.secrets.get(ctx, c.secretKey)
		if err != nil {
			return wrong("reading Secret %s, which label %s of the pods names: %v", c.secret.Name, c.label, err)
		}
		if len(value) == 0 {
			return wrong("Secret %s, which label %s of the pods names, has no key %s: add it, with %s", c.secret.Name,
				c.label, c.key, c.what)
		}
		if out[i] = value; read.Before(since) {
			since = read
		}
	}
	out[0] = bytes.TrimRight(out[0], "\r\n") // the CNF does not count the end of the line either
	address := addressOf(p)
	return access{restclient.Options{
		Address: hostPort(address, f.o.Port), Name: restclient.PodName(address, p.Namespace, f.o.ClusterDomain),
		Password: secret.Bytes(out[0]), CA: out[1], Timeout: f.o.Timeout,
	}}, since, nil
}

// distrust makes the next sync of a member read the Secrets again: they may have changed.
func (f *fleet) distrust(m *member, p *corev1.Pod) {
	m.read = time.Time{}
	f.secrets.forget(p)
}

// problemOf returns what an error of a client means.
func problemOf(pod string, err error) problem {
	switch restclient.ClassOf(err) {
	case restclient.Unauthorized:
		return problem{
			Unauthorized,
			fmt.Sprintf("pod %s: %v: correct the Secret that label %s names, or the password of the CNF", pod, err,
				sdewan.AccountLabel),
		}
	case restclient.Untrusted:
		return problem{
			Untrusted,
			fmt.Sprintf("pod %s: %v: correct the certificate of the CNF, or the Secret that label %s names", pod, err,
				sdewan.CertLabel),
		}
	}
	return problem{Unreachable, fmt.Sprintf("pod %s: %v", pod, err)}
}
