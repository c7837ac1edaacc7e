// Package webhook has the admission webhooks of SD-EWAN:
//
//   - a label sdewanPurpose has one CNF in each namespace (cnf.go);
//   - a rule refers to rules that exist, no rule that others refer to is deleted, and the label
//     sdewanPurpose of a rule never changes (dependencies.go);
//   - who writes rules of a type needs a role that has this type in its annotation (permission.go),
//     beside what RBAC demands.
//
// The API server asks the webhooks about nothing else: a failure of all replicas blocks changes of
// rules and of which Deployments are CNFs, except by the controller itself and, where it is about
// permission, by cluster administrators (Configuration).
//
// To use the package, create Configuration(o), give the pods the rights ClusterRules and
// NamespaceRules, let a Service lead to the webhooks' port, and call AddToManager in every replica.
// The replicas create and renew their common certificate themselves (certificate.go).
//
// The webhooks only refuse mistakes early: the controller tolerates any order, as the webhooks may
// be off, or two requests may overtake each other.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Names of objects.
const (
	// Name is the name of the ValidatingWebhookConfiguration, and the usual name of the Service.
	Name = "sdewan-webhook"
	// SecretName is the name of the Secret in which the replicas share their certificate. It is in
	// the namespace of the controller, and the replicas create it.
	SecretName = "sdewan-webhook-certificate"
)

// Port is the usual port on which pods serve webhooks.
const Port = 9443

// Options describe where the webhooks are.
type Options struct {
	// Namespace is the namespace of the controller, of the Service and of the certificate.
	Namespace string
	// Service is the name of the Service that leads to Port; its own port is 443. "" means Name.
	Service string
	// Account is the name of the ServiceAccount of the controller, which no webhook restricts.
	Account string
	// Port is the port to listen on; 0 means Port.
	Port int
	// Host is the address to listen on; "" means all.
	Host string
	// Hosts are further DNS names or IP addresses by which the API server may reach the webhooks.
	Hosts []string
	// Lifetime is the validity period of a certificate; 0 means 90 days. It is renewed after two
	// thirds of this time.
	Lifetime time.Duration
	// Log may be nil.
	Log *slog.Logger
}

func (o Options) service() string { return cmp.Or(o.Service, Name) }

// The paths of the webhooks.
const (
	cnfPath          = "/validate-cnf"
	dependenciesPath = "/validate-dependencies"
	permissionPath   = "/validate-permission"
)

// AddToManager adds the webhooks, their server and the renewal of their certificate to a manager,
// in whose scheme are the kinds of package api/sdewan, RBAC and apps/v1. All replicas serve,
// whether or not they are the leader. The manager's cache must watch all kinds of sdewan.Kinds,
// Roles, ClusterRoles and their bindings in all namespaces; it is filled by then. AddToManager also
// adds a check named "webhook" to the manager's readiness checks: a pod without a certificate
// serves nothing.
func AddToManager(ctx context.Context, mgr manager.Manager, o Options) error {
	if o.Namespace == "" || o.Account == "" {
		return errors.New("the webhooks need the namespace and the ServiceAccount of the controller")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := indexBindings(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	certificates := newCertificates(mgr.GetClient(), mgr.GetAPIReader(), o)
	server := webhook.NewServer(webhook.Options{Host: o.Host, Port: cmp.Or(o.Port, Port), TLSOpts: certificates.tls()})
	memory := newBudget()
	for path, handler := range handlers(mgr.GetScheme(), mgr.GetClient(), mgr.GetAPIReader(), o) {
		server.Register(path, memory.bound(&webhook.Admission{Handler: handler}))
	}
	if err := addWatch(mgr); err != nil {
		return err
	}
	if err := mgr.Add(certificates); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhook", ready(certificates, server)); err != nil {
		return fmt.Errorf("adding the readiness check of the webhooks: %w", err)
	}
	return mgr.Add(server)
}

// ready is a check that fails until the server serves with a certificate.
func ready(c *certificates, s webhook.Server) healthz.Checker {
	return func(r *http.Request) error {
		if c.current.Load() == nil {
			return errors.New("the webhooks have no certificate yet")
		}
		return s.StartedChecker()(r)
	}
}

// handlers returns the webhooks by their paths. cached reads from the cache, live asks the API
// server.
func handlers(scheme *runtime.Scheme, cached, live client.Reader, o Options) map[string]admission.Handler {
	return map[string]admission.Handler{
		cnfPath:          &oneCNF{live: live, decoder: admission.NewDecoder(scheme), pending: map[string]pendingCNF{}},
		dependenciesPath: &dependencies{cached: cached, live: live, exempt: exempt(o)},
		permissionPath:   &permission{reader: cached, exempt: exempt(o)},
	}
}
