// Package kubernetes_test checks the manifests in packaging/kubernetes: built
// as kustomize builds them, decoded into the real types with nothing unknown
// left over, and compared with what kconsume itself says of its settings.
//
// It is a module of its own, since nothing else needs Kubernetes' types.
package kubernetes_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	security "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	policyv1 "k8s.io/api/policy/v1"
)

const packaging = "../../packaging/kubernetes/"

// overlays are what can be applied.
func overlays() []string { return []string{"base", "example", "alerts"} }

func TestObjectsAreWhatTheirSchemasSay(t *testing.T) {
	for _, dir := range overlays() {
		t.Run(dir, func(t *testing.T) {
			for _, o := range build(t, packaging+dir).all {
				t.Logf("%T %s", o, o.GetName())
			}
		})
	}
}

// A field that does not exist, and a value that the schema does not allow, are
// found: the checks above can fail.
func TestMistakesAreFound(t *testing.T) {
	for name, object := range map[string]string{
		"a field that does not exist":   "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replica: 1}",
		"a text in place of a number":   "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: one}",
		"a value that KEDA has not":     "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: a}\nspec: {scaleTargetRef: {name: a}, triggers: [{type: kafka, metadata: {}}], fallback: {failureThreshold: 3, replicas: 2, behavior: stay}}",
		"a field that KEDA must have":   "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: a}\nspec: {scaleTargetRef: {name: a}}",
		"a kind that nobody has":        "apiVersion: apps/v1\nkind: Deploymint\nmetadata: {name: a}",
		"a field that no monitor knows": "apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {name: a}\nspec: {selector: {}, podMetricsEndpoints: [{prt: metrics}]}",
	} {
		if _, err := decode([]byte(object)); err == nil {
			t.Errorf("%s: not found", name)
		}
	}
}

func TestWhatIsNamedExists(t *testing.T) {
	for _, dir := range overlays()[:2] {
		t.Run(dir, func(t *testing.T) {
			m := build(t, packaging+dir)
			d := one[*apps.Deployment](t, m)
			pod := d.Spec.Template
			matches(t, "the Deployment", d.Spec.Selector, pod.Labels)
			matches(t, "the PodDisruptionBudget", one[*policyv1.PodDisruptionBudget](t, m).Spec.Selector, pod.Labels)
			for _, c := range pod.Spec.TopologySpreadConstraints {
				matches(t, "a spread", c.LabelSelector, pod.Labels)
			}
			for _, source := range sources(pod.Spec.Volumes) {
				if s := source.Secret; s != nil && !m.has("Secret", s.Name) && (s.Optional == nil || !*s.Optional) {
					t.Errorf("no Secret %s", s.Name)
				}
				if c := source.ConfigMap; c != nil && !m.has("ConfigMap", c.Name) {
					t.Errorf("no ConfigMap %s", c.Name)
				}
			}
			mounted := map[string]bool{}
			for _, v := range pod.Spec.Volumes {
				mounted[v.Name] = true
			}
			for _, v := range pod.Spec.Containers[0].VolumeMounts {
				if !mounted[v.Name] {
					t.Errorf("no volume %s", v.Name)
				}
			}
		})
	}
	m := build(t, packaging+"example")
	d := one[*apps.Deployment](t, m)
	if s := one[*core.Secret](t, m); sources(d.Spec.Template.Spec.Volumes)[1].Secret.Name != s.Name {
		t.Errorf("the pods do not mount the Secret %s", s.Name)
	}
	monitor := one[*monitoring.PodMonitor](t, m)
	matches(t, "the PodMonitor", &monitor.Spec.Selector, d.Spec.Template.Labels)
	if _, ok := monitor.Spec.Selector.MatchLabels["app.kubernetes.io/instance"]; !ok {
		t.Error("the PodMonitor also takes the pods of other groups: each would be scraped twice")
	}
	if port := monitor.Spec.PodMetricsEndpoints[0].Port; port == nil || *port != d.Spec.Template.Spec.Containers[0].Ports[0].Name {
		t.Error("the PodMonitor names no port of the pod")
	}
}

// The lag that scales is that of the group and topic that is consumed, on the
// same brokers.
func TestScalingIsByThisGroupsLag(t *testing.T) {
	m := build(t, packaging+"example")
	d, s := one[*apps.Deployment](t, m), one[*keda.ScaledObject](t, m)
	if d.Spec.Replicas != nil {
		t.Error("the Deployment has replicas of its own: each apply would undo the scaling")
	}
	if s.Spec.ScaleTargetRef.Name != d.Name {
		t.Errorf("it scales %s, and the Deployment is %s", s.Spec.ScaleTargetRef.Name, d.Name)
	}
	if s.Spec.MinReplicaCount == nil || *s.Spec.MinReplicaCount < 1 {
		t.Error("it may scale to none, and nobody would deliver what becomes due")
	}
	settings := m.settings(t)
	for key, setting := range map[string]string{"bootstrapServers": "brokers", "consumerGroup": "group", "topic": "topic", "username": "sasl-username"} {
		if got := s.Spec.Triggers[0].Metadata[key]; got != settings[setting] {
			t.Errorf("the trigger's %s is %q, and kconsume's %s %q", key, got, setting, settings[setting])
		}
	}
	auth := one[*keda.TriggerAuthentication](t, m)
	if ref := s.Spec.Triggers[0].AuthenticationRef; ref == nil || ref.Name != auth.Name {
		t.Errorf("the trigger does not use the TriggerAuthentication %s", auth.Name)
	}
	for _, ref := range auth.Spec.SecretTargetRef {
		if !m.has("Secret", ref.Name) {
			t.Errorf("no Secret %s", ref.Name)
		}
	}
}

func TestPodIsRestricted(t *testing.T) {
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := security.LevelVersion{Level: security.LevelRestricted, Version: security.LatestVersion()}
	pod := one[*apps.Deployment](t, build(t, packaging+"base")).Spec.Template
	result := policy.AggregateCheckResults(checks.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
	if !result.Allowed {
		t.Error(result.ForbiddenDetail())
	}
	c := pod.Spec.Containers[0].SecurityContext
	if c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
		t.Error("the root file system can be written to")
	}
	if s := pod.Spec.SecurityContext; *s.RunAsUser != 65532 || *s.FSGroup != *s.RunAsGroup {
		t.Errorf("user %d, group %d, files of group %d", *s.RunAsUser, *s.RunAsGroup, *s.FSGroup)
	}
	if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
		t.Error("it has a token of the API server")
	}
	if mode := pod.Spec.Volumes[0].Projected.DefaultMode; mode == nil || *mode != 0o440 {
		t.Error("secrets are not of mode 0440")
	}
}

// A stop has the time that kconsume takes for it.
func TestStopHasTime(t *testing.T) {
	m := build(t, packaging+"base")
	drain, err := time.ParseDuration(m.settings(t)["drain-timeout"])
	if err != nil {
		t.Fatal(err)
	}
	// The handler's process gets 5 s to end in, the last commit and the farewell to the group 20.
	grace := time.Duration(*one[*apps.Deployment](t, m).Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if grace < drain+25*time.Second {
		t.Errorf("killed after %v, and the drain may take %v", grace, drain)
	}
}

// What kconsume keeps to and what the handler is told fit into the pod, with a
// twentieth to spare for what Go does not count.
func TestMemoryFits(t *testing.T) {
	m := build(t, packaging+"base")
	limit := one[*apps.Deployment](t, m).Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
	var buffer, handler int64
	settings := m.settings(t)
	if _, err := fmt.Sscanf(settings["max-buffer"], "%dMiB", &buffer); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(settings["handler-env"], "[GOMEMLIMIT=%dMiB]", &handler); err != nil {
		t.Fatalf("handler-env %s: %v", settings["handler-env"], err)
	}
	own := 256 + 2*buffer
	if sum := (own + handler) << 20; sum > limit/20*19 {
		t.Errorf("%d MiB of kconsume and %d MiB of the handler in a pod of %d MiB", own, handler, limit>>20)
	}
}

func TestProbes(t *testing.T) {
	c := one[*apps.Deployment](t, build(t, packaging+"base")).Spec.Template.Spec.Containers[0]
	for name, p := range map[string]struct {
		probe *core.Probe
		path  string
	}{"startup": {c.StartupProbe, "/livez"}, "liveness": {c.LivenessProbe, "/livez"}, "readiness": {c.ReadinessProbe, "/readyz"}} {
		if p.probe == nil || p.probe.HTTPGet == nil || p.probe.HTTPGet.Path != p.path || p.probe.HTTPGet.Port.String() != c.Ports[0].Name {
			t.Errorf("%s: %+v, want %s at %s", name, p.probe, p.path, c.Ports[0].Name)
		}
	}
	// It answers after 10 s at the latest, and says then which loop has not.
	if c.LivenessProbe.TimeoutSeconds <= 10 {
		t.Errorf("liveness waits %d s", c.LivenessProbe.TimeoutSeconds)
	}
}

// kconsume takes the settings as they stand in the ConfigMaps.
func TestSettingsAreKconsumes(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "kconsume")
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/kconsume")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build kconsume: %v\n%s", err, out)
	}
	for _, dir := range overlays()[:2] {
		file := filepath.Join(t.TempDir(), "kconsume.yaml")
		if err := os.WriteFile(file, []byte(one[*core.ConfigMap](t, build(t, packaging+dir)).Data["kconsume.yaml"]), 0o600); err != nil {
			t.Fatal(err)
		}
		show := exec.Command(bin, "config", "show", "--config", file)
		show.Env = []string{"HOME=" + t.TempDir()}
		if out, err := show.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
	}
}

// settings are what stands in the ConfigMap, as text.
func (m manifests) settings(t *testing.T) map[string]string {
	t.Helper()
	values := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(one[*core.ConfigMap](t, m).Data["kconsume.yaml"]), &values); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for k, v := range values {
		out[k] = fmt.Sprint(v)
	}
	return out
}

func sources(volumes []core.Volume) (out []core.VolumeProjection) {
	for _, v := range volumes {
		if v.Projected != nil {
			out = append(out, v.Projected.Sources...)
		}
	}
	return out
}

func matches(t *testing.T, what string, s *meta.LabelSelector, have map[string]string) {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	if selector.Empty() || !selector.Matches(labels.Set(have)) {
		t.Errorf("%s selects %q, and the pods have %v", what, selector, have)
	}
}
