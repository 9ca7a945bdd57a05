/* Windows Firewall's COM interface for tests, as far as this program uses it, over files below C:\test.
 *
 * firewall: the rules, one in each line:
 *     id, name, group, protocol (6|17|256), local ports, enabled (0|1), direction, action, profiles,
 *     remote addresses, edge traversal (0|1); the last two may be left out
 * with tabs between. A test writes the existing ones; ids must differ.
 * firewall.faults: METHOD CODE in each line: Rules, Item, Add, Remove or Enum returns CODE, each time.
 *
 * As on Windows, a change of an existing rule takes effect at once, Add creates a second rule of
 * the same name, and ports are refused before the protocol is set. */
#define _WIN32_WINNT 0x0A00
#define COBJMACROS
#define INITGUID
#include <windows.h>
#include <initguid.h>
#include <netfw.h>
#include <oleauto.h>
#include "state.h"

static HRESULT asked_fault(const char *method)
{
    char *all = read_state("firewall.faults"), *rest = all, *line, name[32], code[32];
    HRESULT result = S_OK;
    while ((line = next_line(&rest)))
        if (sscanf(line, "%31s %31s", name, code) == 2 && !strcmp(name, method))
            result = (HRESULT)strtoul(code, NULL, 0);
    free(all);
    return result;
}

/* ---- a rule ---- */

enum { NAME, GROUP, PORTS, REMOTES, TEXTS };

struct values {
    long id, protocol, enabled, direction, action, profiles, edge;
    char texts[TEXTS][256];
};

struct rule {
    const INetFwRuleVtbl *vtable;
    LONG references;
    struct values is;
};

static int parse_rule(char *line, struct values *rule)
{
    char *f[MAX_FIELDS];
    split_fields(line, f);
    *rule = (struct values){atol(f[0]), atol(f[3]), atol(f[5]), atol(f[6]), atol(f[7]), atol(f[8]), atol(f[10]), {{0}}};
    snprintf(rule->texts[NAME], 256, "%s", f[1]);
    snprintf(rule->texts[GROUP], 256, "%s", f[2]);
    snprintf(rule->texts[PORTS], 256, "%s", f[4]);
    snprintf(rule->texts[REMOTES], 256, "%s", *f[9] ? f[9] : "*");
    return rule->id > 0;
}

static void print_rule(struct text *to, const struct values *r)
{
    char line[1280], more[300] = "";
    if (strcmp(r->texts[REMOTES], "*") || r->edge)
        snprintf(more, sizeof more, "\t%s\t%ld", r->texts[REMOTES], r->edge);
    snprintf(line, sizeof line, "%ld\t%s\t%s\t%ld\t%s\t%ld\t%ld\t%ld\t%ld%s\n", r->id, r->texts[NAME], r->texts[GROUP],
             r->protocol, r->texts[PORTS], r->enabled, r->direction, r->action, r->profiles, more);
    add(to, line);
}

/* Calls `visit` for every rule; it returns 0 to keep it, 1 after changing it, -1 to delete it. */
static void each_rule(int (*visit)(struct values *rule, void *with), void *with)
{
    HANDLE lock = test_lock();
    char *all = read_state("firewall"), *rest = all, *line;
    struct text left = {0};
    struct values rule;
    int changed = 0;
    add(&left, "");
    while ((line = next_line(&rest))) {
        if (!parse_rule(line, &rule))
            continue;
        int verdict = visit(&rule, with);
        changed |= verdict;
        if (verdict >= 0)
            print_rule(&left, &rule);
    }
    if (changed)
        write_state("firewall", left.at, "wb");
    free(left.at);
    free(all);
    test_unlock(lock);
}

static int overwrite(struct values *rule, void *with)
{
    const struct values *now = with;
    if (rule->id != now->id)
        return 0;
    *rule = *now;
    return 1;
}

static HRESULT changed(struct rule *rule)
{
    if (rule->is.id)
        each_rule(overwrite, &rule->is);
    return S_OK;
}

static HRESULT give_text(const char *text, BSTR *to)
{
    WCHAR wide[256];
    MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, 256);
    *to = SysAllocString(wide);
    return S_OK;
}

static HRESULT take_text(INetFwRule *this, BSTR text, int which)
{
    struct rule *rule = (struct rule *)this;
    WideCharToMultiByte(CP_UTF8, 0, text ? text : L"", -1, rule->is.texts[which], 255, NULL, NULL);
    return changed(rule);
}

static HRESULT WINAPI rule_query(INetFwRule *this, REFIID iid, void **to)
{
    if (!IsEqualIID(iid, &IID_IUnknown) && !IsEqualIID(iid, &IID_IDispatch) && !IsEqualIID(iid, &IID_INetFwRule)) {
        *to = NULL;
        return E_NOINTERFACE;
    }
    *to = this;
    INetFwRule_AddRef(this);
    return S_OK;
}

static ULONG WINAPI rule_add_ref(INetFwRule *this)
{
    return InterlockedIncrement(&((struct rule *)this)->references);
}

static ULONG WINAPI rule_release(INetFwRule *this)
{
    LONG left = InterlockedDecrement(&((struct rule *)this)->references);
    if (!left)
        free(this);
    return left;
}

#define TEXT_PROPERTY(property, which)                                                                                 \
    static HRESULT WINAPI get_##property(INetFwRule *this, BSTR *to)                                                   \
    {                                                                                                                  \
        return give_text(((struct rule *)this)->is.texts[which], to);                                                  \
    }                                                                                                                  \
    static HRESULT WINAPI put_##property(INetFwRule *this, BSTR text)                                                  \
    {                                                                                                                  \
        return take_text(this, text, which);                                                                           \
    }
TEXT_PROPERTY(name, NAME)
TEXT_PROPERTY(grouping, GROUP)
TEXT_PROPERTY(remotes, REMOTES)

#define NUMBER_PROPERTY(property, type)                                                                                \
    static HRESULT WINAPI get_##property(INetFwRule *this, type *to)                                                   \
    {                                                                                                                  \
        *to = (type)((struct rule *)this)->is.property;                                                                \
        return S_OK;                                                                                                   \
    }                                                                                                                  \
    static HRESULT WINAPI put_##property(INetFwRule *this, type number)                                                \
    {                                                                                                                  \
        ((struct rule *)this)->is.property = number;                                                                   \
        return changed((struct rule *)this);                                                                           \
    }
NUMBER_PROPERTY(protocol, LONG)
NUMBER_PROPERTY(direction, NET_FW_RULE_DIRECTION)
NUMBER_PROPERTY(action, NET_FW_ACTION)
NUMBER_PROPERTY(profiles, LONG)

static HRESULT WINAPI get_enabled(INetFwRule *this, VARIANT_BOOL *to)
{
    *to = ((struct rule *)this)->is.enabled ? VARIANT_TRUE : VARIANT_FALSE;
    return S_OK;
}

static HRESULT WINAPI put_enabled(INetFwRule *this, VARIANT_BOOL enabled)
{
    ((struct rule *)this)->is.enabled = enabled != VARIANT_FALSE;
    return changed((struct rule *)this);
}

static HRESULT WINAPI get_edge(INetFwRule *this, VARIANT_BOOL *to)
{
    *to = ((struct rule *)this)->is.edge ? VARIANT_TRUE : VARIANT_FALSE;
    return S_OK;
}

static HRESULT WINAPI put_edge(INetFwRule *this, VARIANT_BOOL edge)
{
    ((struct rule *)this)->is.edge = edge != VARIANT_FALSE;
    return changed((struct rule *)this);
}

static HRESULT WINAPI get_ports(INetFwRule *this, BSTR *to)
{
    return give_text(((struct rule *)this)->is.texts[PORTS], to);
}

static HRESULT WINAPI put_ports(INetFwRule *this, BSTR text)
{
    long protocol = ((struct rule *)this)->is.protocol;
    return protocol == 6 || protocol == 17 ? take_text(this, text, PORTS) : E_INVALIDARG;
}

/* No rule here is for one program or service. */
static HRESULT WINAPI get_nobody(INetFwRule *this, BSTR *to)
{
    return give_text("", to);
}

static const INetFwRuleVtbl rule_vtable = {
    .QueryInterface = rule_query,
    .AddRef = rule_add_ref,
    .Release = rule_release,
    .get_Name = get_name,
    .put_Name = put_name,
    .get_Grouping = get_grouping,
    .put_Grouping = put_grouping,
    .get_ApplicationName = get_nobody,
    .get_ServiceName = get_nobody,
    .get_Protocol = get_protocol,
    .put_Protocol = put_protocol,
    .get_LocalPorts = get_ports,
    .put_LocalPorts = put_ports,
    .get_RemoteAddresses = get_remotes,
    .put_RemoteAddresses = put_remotes,
    .get_EdgeTraversal = get_edge,
    .put_EdgeTraversal = put_edge,
    .get_Direction = get_direction,
    .put_Direction = put_direction,
    .get_Enabled = get_enabled,
    .put_Enabled = put_enabled,
    .get_Profiles = get_profiles,
    .put_Profiles = put_profiles,
    .get_Action = get_action,
    .put_Action = put_action,
};

static INetFwRule *new_rule(const struct values *is)
{
    struct rule *rule = calloc(1, sizeof *rule);
    rule->vtable = &rule_vtable;
    rule->references = 1;
    rule->is = *is;
    return (INetFwRule *)rule;
}

/* ---- the rules and their enumeration ---- */

struct found {
    const char *name;
    struct values rules[512];
    int count;
    long highest;
};

static int gather(struct values *rule, void *with)
{
    struct found *found = with;
    if (rule->id > found->highest)
        found->highest = rule->id;
    if (found->count < 512 && (!found->name || !_stricmp(found->name, rule->texts[NAME])))
        found->rules[found->count++] = *rule;
    return 0;
}

static int drop(struct values *rule, void *with)
{
    return rule->id == *(long *)with ? -1 : 0;
}

struct walk {
    const IEnumVARIANTVtbl *vtable;
    LONG references;
    int at;
    struct found found;
};

static HRESULT WINAPI walk_query(IEnumVARIANT *this, REFIID iid, void **to)
{
    if (!IsEqualIID(iid, &IID_IUnknown) && !IsEqualIID(iid, &IID_IEnumVARIANT)) {
        *to = NULL;
        return E_NOINTERFACE;
    }
    *to = this;
    IEnumVARIANT_AddRef(this);
    return S_OK;
}

static ULONG WINAPI walk_add_ref(IEnumVARIANT *this)
{
    return InterlockedIncrement(&((struct walk *)this)->references);
}

static ULONG WINAPI walk_release(IEnumVARIANT *this)
{
    LONG left = InterlockedDecrement(&((struct walk *)this)->references);
    if (!left)
        free(this);
    return left;
}

static HRESULT WINAPI walk_next(IEnumVARIANT *this, ULONG wanted, VARIANT *to, ULONG *fetched)
{
    struct walk *walk = (struct walk *)this;
    ULONG given = 0;
    for (; given < wanted && walk->at < walk->found.count; given++) {
        V_VT(&to[given]) = VT_DISPATCH;
        V_DISPATCH(&to[given]) = (IDispatch *)new_rule(&walk->found.rules[walk->at++]);
    }
    if (fetched)
        *fetched = given;
    return given == wanted ? S_OK : S_FALSE;
}

static const IEnumVARIANTVtbl walk_vtable = {
    .QueryInterface = walk_query, .AddRef = walk_add_ref, .Release = walk_release, .Next = walk_next};

/* Policy and rules have no state of their own: one object each, never freed. */
static ULONG WINAPI one_reference(void *this)
{
    return 1;
}

static HRESULT WINAPI rules_query(INetFwRules *this, REFIID iid, void **to)
{
    *to = this;
    return S_OK;
}

static HRESULT WINAPI rules_count(INetFwRules *this, long *count)
{
    struct found *found = calloc(1, sizeof *found);
    each_rule(gather, found);
    *count = found->count;
    free(found);
    return S_OK;
}

static HRESULT WINAPI rules_add(INetFwRules *this, INetFwRule *rule)
{
    HRESULT result = asked_fault("Add");
    struct values *is = &((struct rule *)rule)->is;
    if (FAILED(result))
        return result;
    if (!*is->texts[NAME])
        return E_INVALIDARG;
    struct found *found = calloc(1, sizeof *found);
    struct text line = {0};
    each_rule(gather, found);
    is->id = found->highest + 1;
    print_rule(&line, is);
    write_state("firewall", line.at, "ab");
    free(line.at);
    free(found);
    return S_OK;
}

static HRESULT find(BSTR name, struct values *rule)
{
    char narrow[256];
    WideCharToMultiByte(CP_UTF8, 0, name, -1, narrow, 255, NULL, NULL);
    struct found *found = calloc(1, sizeof *found);
    found->name = narrow;
    each_rule(gather, found);
    HRESULT result = found->count ? S_OK : HRESULT_FROM_WIN32(ERROR_FILE_NOT_FOUND);
    *rule = found->rules[0];
    free(found);
    return result;
}

static HRESULT WINAPI rules_remove(INetFwRules *this, BSTR name)
{
    struct values rule;
    HRESULT result = asked_fault("Remove");
    if (SUCCEEDED(result))
        result = find(name, &rule);
    if (SUCCEEDED(result))
        each_rule(drop, &rule.id);
    return result;
}

static HRESULT WINAPI rules_item(INetFwRules *this, BSTR name, INetFwRule **to)
{
    struct values rule;
    HRESULT result = asked_fault("Item");
    if (SUCCEEDED(result))
        result = find(name, &rule);
    *to = SUCCEEDED(result) ? new_rule(&rule) : NULL;
    return result;
}

static HRESULT WINAPI rules_enumerate(INetFwRules *this, IUnknown **to)
{
    HRESULT result = asked_fault("Enum");
    if (FAILED(result))
        return result;
    struct walk *walk = calloc(1, sizeof *walk);
    walk->vtable = &walk_vtable;
    walk->references = 1;
    each_rule(gather, &walk->found);
    *to = (IUnknown *)walk;
    return S_OK;
}

static const INetFwRulesVtbl rules_vtable = {
    .QueryInterface = rules_query,
    .AddRef = (void *)one_reference,
    .Release = (void *)one_reference,
    .get_Count = rules_count,
    .Add = rules_add,
    .Remove = rules_remove,
    .Item = rules_item,
    .get__NewEnum = rules_enumerate,
};
static INetFwRules the_rules = {.lpVtbl = (INetFwRulesVtbl *)&rules_vtable};

static HRESULT WINAPI policy_query(INetFwPolicy2 *this, REFIID iid, void **to)
{
    *to = this;
    return S_OK;
}

static HRESULT WINAPI policy_rules(INetFwPolicy2 *this, INetFwRules **to)
{
    HRESULT result = asked_fault("Rules");
    *to = SUCCEEDED(result) ? &the_rules : NULL;
    return result;
}

/* One network, with the profile Domain. The firewall is on, and allows what a rule allows. */
static HRESULT WINAPI policy_profiles(INetFwPolicy2 *this, LONG *profiles)
{
    *profiles = NET_FW_PROFILE2_DOMAIN;
    return S_OK;
}

static HRESULT WINAPI policy_enabled(INetFwPolicy2 *this, NET_FW_PROFILE_TYPE2 profile, VARIANT_BOOL *enabled)
{
    *enabled = VARIANT_TRUE;
    return S_OK;
}

static HRESULT WINAPI policy_inbound(INetFwPolicy2 *this, NET_FW_PROFILE_TYPE2 profile, NET_FW_ACTION *action)
{
    *action = NET_FW_ACTION_BLOCK;
    return S_OK;
}

static const INetFwPolicy2Vtbl policy_vtable = {.QueryInterface = policy_query,
                                                .AddRef = (void *)one_reference,
                                                .Release = (void *)one_reference,
                                                .get_CurrentProfileTypes = policy_profiles,
                                                .get_FirewallEnabled = policy_enabled,
                                                .get_DefaultInboundAction = policy_inbound,
                                                .get_Rules = policy_rules};
static INetFwPolicy2 the_policy = {.lpVtbl = (INetFwPolicy2Vtbl *)&policy_vtable};

/* ---- the server ---- */

struct factory {
    const IClassFactoryVtbl *vtable;
    int makes_rules;
};

static HRESULT WINAPI factory_query(IClassFactory *this, REFIID iid, void **to)
{
    *to = this;
    return S_OK;
}

static HRESULT WINAPI factory_create(IClassFactory *this, IUnknown *outer, REFIID iid, void **to)
{
    /* A new rule on Windows: any protocol, inbound, allow, for all profiles, not enabled. */
    static const struct values fresh = {0, 256, 0, 1, 1, 0x7FFFFFFF, 0, {{0}, {0}, {0}, "*"}};
    *to = ((struct factory *)this)->makes_rules ? (void *)new_rule(&fresh) : (void *)&the_policy;
    return S_OK;
}

static HRESULT WINAPI factory_lock(IClassFactory *this, BOOL lock)
{
    return S_OK;
}

static const IClassFactoryVtbl factory_vtable = {.QueryInterface = factory_query,
                                                 .AddRef = (void *)one_reference,
                                                 .Release = (void *)one_reference,
                                                 .CreateInstance = factory_create,
                                                 .LockServer = factory_lock};
static struct factory policies = {&factory_vtable, 0}, rules = {&factory_vtable, 1};

__declspec(dllexport) HRESULT WINAPI DllGetClassObject(REFCLSID class, REFIID iid, void **to)
{
    static const GUID policy_class = {0xE2B3C97F, 0x6AE1, 0x41AC, {0x81, 0x7A, 0xF6, 0xF9, 0x21, 0x66, 0xD7, 0xDD}};
    static const GUID rule_class = {0x2C5BC43E, 0x3369, 0x4C33, {0xAB, 0x0C, 0xBE, 0x94, 0x69, 0x67, 0x7A, 0xF4}};
    *to = IsEqualGUID(class, &policy_class) ? &policies : IsEqualGUID(class, &rule_class) ? &rules : NULL;
    return *to ? S_OK : CLASS_E_CLASSNOTAVAILABLE;
}
