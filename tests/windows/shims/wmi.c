/* WMI, as much of it as switches an adapter's DHCP client: the class MSFT_NetIPInterface of ROOT\StandardCimv2, whose
 * property Dhcp is the adapter's in C:\test\adapters (state.h). wmi.faults: PUT CODE, and PutInstance fails so; PUT keep,
 * and it succeeds and changes nothing.
 *
 * As with WMI's own proxies, PutInstance is refused unless the caller lets WMI act with its rights. */
#define COBJMACROS
#define CINTERFACE
#define _WIN32_WINNT 0x0A00
#include <windows.h>
#include <initguid.h>
#include <objbase.h>
#include <wbemcli.h>
#include "state.h"

#define SPACE L"ROOT\\StandardCimv2"

/* One structure for all: each interface's table of functions comes first, and nothing is freed. */
struct object {
    const void *table;
    long number;
    int blanketed, given;
    BYTE dhcp;
};

struct services {
    const void *table, *security;
    int blanketed;
};

static HRESULT STDMETHODCALLTYPE unknown(void *self, REFIID id, void **out)
{
    *out = self;
    return S_OK;
}

static ULONG STDMETHODCALLTYPE one(void *self)
{
    return 1;
}

static HRESULT STDMETHODCALLTYPE none(void)
{
    return E_NOTIMPL;
}

/* ---- an instance of the class ---- */

static HRESULT STDMETHODCALLTYPE put_property(IWbemClassObject *self, LPCWSTR name, long flags, VARIANT *value, CIMTYPE type)
{
    /* A uint8 of CIM. */
    if (_wcsicmp(name, L"Dhcp") || V_VT(value) != VT_UI1)
        return WBEM_E_TYPE_MISMATCH;
    ((struct object *)self)->dhcp = V_UI1(value);
    return WBEM_S_NO_ERROR;
}

static void *const instance_table[] = {
    unknown, one, one, none, none, put_property, none, none, none, none, none, none, none, none,
    none,    none, none, none, none, none, none, none, none, none, none, none, none,
};

/* ---- the result of a query ---- */

static HRESULT STDMETHODCALLTYPE next(IEnumWbemClassObject *self, long timeout, ULONG count, IWbemClassObject **out,
                                      ULONG *returned)
{
    struct object *result = (struct object *)self, *instance;
    *returned = 0;
    if (result->given || result->number < 0)
        return WBEM_S_FALSE;
    result->given = 1;
    instance = calloc(1, sizeof *instance);
    instance->table = instance_table;
    instance->number = result->number;
    *out = (IWbemClassObject *)instance;
    *returned = 1;
    return WBEM_S_NO_ERROR;
}

static void *const result_table[] = { unknown, one, one, none, next, none, none, none };

/* ---- the name space ---- */

static int has_adapter(long index)
{
    char *all = read_state("adapters"), *rest = all, *line;
    struct adapter a;
    int there = 0;
    while ((line = next_line(&rest)))
        there |= parse_adapter(line, &a) && atol(a.index) == index && !has_switch(a.name);
    free(all);
    return there;
}

static void set_dhcp(long index, int on)
{
    HANDLE lock = test_lock();
    char *all = read_state("adapters"), *rest = all, *line;
    struct text kept = {0};
    struct adapter a;
    add(&kept, "");
    while ((line = next_line(&rest))) {
        if (!parse_adapter(line, &a))
            continue;
        if (atol(a.index) == index)
            a.dhcp = on ? "1" : "0";
        print_adapter(&kept, &a);
    }
    write_state("adapters", kept.at, "wb");
    free(kept.at);
    free(all);
    test_unlock(lock);
}

static HRESULT STDMETHODCALLTYPE exec_query(IWbemServices *self, BSTR language, BSTR query, long flags, IWbemContext *context,
                                            IEnumWbemClassObject **out)
{
    struct object *result = calloc(1, sizeof *result);
    long index, family;
    if (_wcsicmp(language, L"WQL") ||
        swscanf(query, L"SELECT * FROM MSFT_NetIPInterface WHERE InterfaceIndex = %ld AND AddressFamily = %ld", &index,
                &family) != 2 ||
        family != 2)
        return WBEM_E_INVALID_QUERY;
    result->table = result_table;
    result->number = has_adapter(index) ? index : -1;
    *out = (IEnumWbemClassObject *)result;
    return WBEM_S_NO_ERROR;
}

static HRESULT STDMETHODCALLTYPE put_instance(IWbemServices *self, IWbemClassObject *instance, long flags,
                                              IWbemContext *context, IWbemCallResult **result)
{
    const struct object *what = (const struct object *)instance;
    char *faults = read_state("wmi.faults"), how[32] = "";
    int told = sscanf(faults, "PUT %31s", how) == 1;
    free(faults);
    if (!((struct services *)self)->blanketed)
        return WBEM_E_ACCESS_DENIED;
    if (told && strcmp(how, "keep"))
        return (HRESULT)strtoul(how, NULL, 0);
    if (!told)
        set_dhcp(what->number, what->dhcp);
    return WBEM_S_NO_ERROR;
}

static const void *const security_table[];

static HRESULT STDMETHODCALLTYPE services_query(struct services *self, REFIID id, void **out)
{
    *out = IsEqualGUID(id, &IID_IClientSecurity) ? (void *)&self->security : (void *)self;
    return S_OK;
}

static HRESULT STDMETHODCALLTYPE set_blanket(void *security, IUnknown *proxy, DWORD authentication, DWORD authorization,
                                             OLECHAR *name, DWORD level, DWORD acts_as, void *about, DWORD can)
{
    ((struct services *)proxy)->blanketed = level >= RPC_C_AUTHN_LEVEL_CALL && acts_as >= RPC_C_IMP_LEVEL_IMPERSONATE;
    return S_OK;
}

static const void *const security_table[] = { unknown, one, one, none, set_blanket, none };

static const void *const services_table[] = {
    services_query, one, one, none, none, none, none, none, none, none, none, none, none,
    none, put_instance, none, none, none, none, none, exec_query, none, none, none, none, none,
};

/* ---- the locator ---- */

static HRESULT STDMETHODCALLTYPE connect_server(IWbemLocator *self, BSTR space, BSTR user, BSTR password, BSTR locale,
                                                long flags, BSTR authority, IWbemContext *context, IWbemServices **out)
{
    struct services *services = calloc(1, sizeof *services);
    if (_wcsicmp(space, SPACE))
        return WBEM_E_INVALID_NAMESPACE;
    services->table = services_table;
    services->security = security_table;
    *out = (IWbemServices *)services;
    return WBEM_S_NO_ERROR;
}

static void *const locator_table[] = { unknown, one, one, connect_server };
static struct object locator = { .table = locator_table };

static HRESULT STDMETHODCALLTYPE create(IClassFactory *self, IUnknown *outer, REFIID id, void **out)
{
    *out = &locator;
    return S_OK;
}

static void *const factory_table[] = { unknown, one, one, create, none };
static struct object factory = { .table = factory_table };

__declspec(dllexport) HRESULT WINAPI DllGetClassObject(REFCLSID class, REFIID id, void **out)
{
    *out = &factory;
    return S_OK;
}

__declspec(dllexport) HRESULT WINAPI DllCanUnloadNow(void)
{
    return S_FALSE;
}
