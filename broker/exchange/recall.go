package exchange

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MemoryName is the name of the ConfigMap in which a cluster keeps its Memory, so that another
// gateway, or a restarted one, remembers the same.
const MemoryName = "submariner-trust-memory"

// NewMemory returns the empty ConfigMap in a namespace. Whoever applies it again leaves its data
// as it is.
func NewMemory(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: MemoryName, Namespace: namespace}}
}

// MemoryRules returns the rights that an Exchange needs to its Memory.
func MemoryRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups:     []string{""},
			Resources:     []string{"configmaps"},
			ResourceNames: []string{MemoryName},
			Verbs:         []string{"update"},
		},
	}
}

// memoryKey is the key of the ConfigMap's data.
const memoryKey = "memory.json"

// storePause is the least time between two changes of the ConfigMap, of up to 1 MiB, that are not
// urgent: etcd keeps all of them until it is compacted.
const storePause = 2 * time.Second

// recall reads the stored Memory once.
func (e *Exchange) recall(ctx context.Context, c client.Client) error {
	if e.recalled {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	stored, _, err := e.stored(ctx, c)
	if err != nil {
		return err
	}
	e.memory = stored
	e.recalled = true
	return nil
}

// stored returns the stored Memory and the ConfigMap. Both are empty if it does not exist.
func (e *Exchange) stored(ctx context.Context, c client.Client) (m Memory, cm *corev1.ConfigMap, err error) {
	cm = &corev1.ConfigMap{}
	err = c.Get(ctx, client.ObjectKey{Namespace: e.config.Namespace, Name: MemoryName}, cm)
	switch {
	case apierrors.IsNotFound(err):
		return m, &corev1.ConfigMap{}, nil
	case err != nil:
		return m, cm, fmt.Errorf("reading ConfigMap %s: %w", MemoryName, err)
	}
	m, err = memoryOf(cm)
	return m, cm, err
}

// memoryOf returns the Memory in a ConfigMap.
func memoryOf(cm *corev1.ConfigMap) (m Memory, err error) {
	if text := cm.Data[memoryKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return m, fmt.Errorf("reading ConfigMap %s: %w: delete its data", MemoryName, err)
		}
	}
	return m, nil
}

// remember stores what a Plan wants to be remembered, if that has changed, and adds what another
// gateway has stored in the meantime. What could not be stored is stored by a later pass. So is
// what is not urgent, if something was stored just before: a cluster may sign new grants of its
// invitation all the time.
func (e *Exchange) remember(ctx context.Context, c client.Client, m Memory, urgent bool) error {
	if m.changed {
		e.unstored = true
	}
	e.memory = m
	if !e.unstored || !urgent && time.Since(e.stores) < storePause {
		return nil
	}
	e.stores = time.Now()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	stored, cm, err := e.stored(ctx, c)
	if err != nil {
		return err
	}
	e.memory.merge(stored)
	e.memory.trim()
	text, err := json.Marshal(e.memory)
	if err != nil {
		return fmt.Errorf("encoding ConfigMap %s: %w", MemoryName, err)
	}
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Data[memoryKey] = string(text)
	if cm.UID == "" {
		cm.ObjectMeta = NewMemory(e.config.Namespace).ObjectMeta
		err = c.Create(ctx, cm, client.FieldOwner(fieldOwner))
	} else {
		err = c.Update(ctx, cm, client.FieldOwner(fieldOwner))
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w: run subctl join again, which creates it", err)
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", MemoryName, err)
	}
	e.unstored = false
	return nil
}

// waiting keeps the time of the first refusal of objects that may be accepted soon. The objects
// of a cluster that is joining arrive one by one.
type waiting map[Refusal]time.Time

// ripe returns the refusals without those that are early, and not old.
func (w *waiting) ripe(refused []Refusal, now time.Time) (out []Refusal) {
	before := *w
	*w = waiting{}
	for _, r := range refused {
		if r.early {
			since, ok := before[r]
			if !ok {
				since = now
			}
			(*w)[r] = since
			if now.Sub(since) < resync {
				continue
			}
			r.early = false
		}
		out = append(out, r)
	}
	return out
}
